/* Every keyword of JSON Schema is taken: it is enforced, shown by documents
 * that the grammar takes and by others that it does not, or it is named in the
 * notes of the grammar. */
#include "lib/schema_try.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 9 };

struct row {
    const char *schema, *in[MOST], *out[MOST];
    const char *note; /* a part of the notes; NULL if there are none */
};

static void expect_rows(const struct row *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        schema_try_expect(row[i].schema, row[i].in, row[i].out,
                          row[i].note ? row[i].note : "");
}

#define EXPECT(rows) expect_rows(rows, sizeof rows / sizeof rows[0])

TEST(schema_keywords_of_strings)
{
    static const struct row rows[] = {
        {"{'type':'string','format':'email'}",
         {"'a@b.org'", "'x.y+z@mail.example.com'"},
         {"'a'", "'a@b'", "'@b.org'", "'a@b.org '", "'a@-b.org'"},
         NULL},
        {"{'type':'string','format':'uri'}",
         {"'https://a.org'", "'http://a.org:80/b/c?d=e#f'", "'mailto:a@b.c'",
          "'urn:x:1'"},
         {"'a.org'", "'//a'", "'http://a b'", "'http:'", "'https://a:b/'"},
         NULL},
        {"{'type':'string','format':'uri-reference'}",
         {"'/a/b'", "'a?b'", "'#c'", "''", "'http://a.org'"},
         {"'a b'", "'\\\\'"},
         NULL},
        {"{'type':'string','format':'hostname'}",
         {"'a'", "'www.example.com'", "'a-1.b'"},
         {"''", "'-a'", "'a-'", "'a..b'", "'a_b'"},
         NULL},
        {"{'type':'string','format':'ipv4'}",
         {"'0.0.0.0'", "'255.249.10.1'"},
         {"'256.1.1.1'", "'1.1.1'", "'01.1.1.1'", "'1.1.1.1.1'"},
         NULL},
        {"{'type':'string','format':'ipv6'}",
         {"'::'", "'::1'", "'2001:db8::1'", "'1:2:3:4:5:6:7:8'", "'fe80::'"},
         {"':'", "'1::2::3'", "'1:2:3:4:5:6:7'", "'12345::'", "'g::'"},
         NULL},
        {"{'type':'string','format':'duration'}",
         {"'P1D'", "'P1Y2M3DT4H5M6S'", "'PT30S'", "'P2W'"},
         {"'P'", "'PT'", "'1D'", "'P1Y3D'", "'P1H'"},
         NULL},
        {"{'type':'string','format':'json-pointer'}",
         {"''", "'/a/~0b'"},
         {"'a'", "'/~2'"},
         NULL},
        {"{'type':'string','format':'byte'}",
         {"''", "'QUJD'", "'QQ=='"},
         {"'Q'", "'QQ='", "'Q!=='"},
         NULL},
        {"{'type':'string','format':'ulid'}",
         {"'01ARZ3NDEKTSV4RRFFQ69G5FAV'"},
         {"'01ARZ3NDEKTSV4RRFFQ69G5FA'", "'81ARZ3NDEKTSV4RRFFQ69G5FAV'"},
         NULL},
        {"{'type':'string','format':'password'}", {"'x'"}, {"1"}, NULL},
        {"{'type':'string','format':'colour'}",
         {"'x'"},
         {"1"},
         "#: format is not known, and not enforced"},
        {"{'type':'string','pattern':'^[a-z]+$','minLength':2,'maxLength':4}",
         {"'ab'", "'abcd'"},
         {"'a'", "'abcde'", "'a1'"},
         NULL},
        {"{'type':'string','pattern':'^a.*z$','maxLength':3}",
         {"'az'", "'abz'"},
         {"'abbz'", "'ab'", "'a'"},
         NULL},
        {"{'type':'string','pattern':'^1','format':'ipv4'}",
         {"'1.2.3.4'"},
         {"'2.2.3.4'", "'1'"},
         NULL},
        {"{'pattern':'^\\\\p{L}+$'}",
         {"'ab'", "'\xc3\xa9\xe7\x8c\xab'"},
         {"''", "'a1'", "'-'"},
         NULL},
        {"{'pattern':'^\\\\p{Lu}\\\\P{L}$'}",
         {"'A1'", "'\xc3\x89-'"},
         {"'a1'", "'AA'"},
         NULL},
        {"{'pattern':'^(?=.*[A-Z])(?=.*\\\\d)[A-Za-z0-9]{3,5}$'}",
         {"'aB1'", "'1B111'"},
         {"'ab1'", "'aBc'", "'B1'", "'aB1-'", "'aB1111'"},
         NULL},
        {"{'pattern':'^(?!con$|aux$)[a-z]+$'}",
         {"'co'", "'cons'", "'x'"},
         {"'con'", "'aux'", "''"},
         NULL},
        {"{'pattern':'^(?!-)[a-z-]+(?<!-)$'}",
         {"'a'", "'a-b'"},
         {"'-a'", "'a-'", "'-'"},
         NULL},
        {"{'pattern':'\\\\bword\\\\b'}",
         {"'anything'"},
         {"1"},
         "#: pattern is not enforced, at byte 2: this escape is not supported"},
        {"{'pattern':'^a{20000}$'}", {"'a'"}, {"1"}, "more than 10,000 times"},
        {"{'type':'string','maxLength':1000000}",
         {"'a'"},
         {"1"},
         "#: maxLength above 6000 is not enforced"},
        {"{'not':{'enum':['a','b']},'type':'string'}",
         {"''", "'ab'", "'c'"},
         {"'a'", "'b'"},
         NULL},
        {"{'not':{'pattern':'^_'},'type':'string'}",
         {"''", "'a_'"},
         {"'_'", "'_a'"},
         NULL},
        {"{'type':'string','contentEncoding':'base64','contentMediaType':"
         "'image/png'}",
         {"'QQ=='"},
         {"1"},
         NULL},
    };

    EXPECT(rows);
}

TEST(schema_keywords_of_numbers)
{
    static const struct row rows[] = {
        {"{'type':'number','minimum':0,'maximum':1}",
         {"0", "1", "0.5", "1.0", "0.000001"},
         {"-0.1", "1.1", "2", "1.01", "10"},
         NULL},
        {"{'type':'number','exclusiveMinimum':0,'maximum':2.5}",
         {"0.1", "1", "2.5", "2.49", "2.50"},
         {"0", "0.0", "2.51", "3", "-1"},
         NULL},
        {"{'type':'number','minimum':-1.25,'exclusiveMaximum':1.25}",
         {"-1.25", "-1.2", "0", "1.249", "-1", "1"},
         {"-1.26", "1.25", "1.3", "-2", "1.250"},
         NULL},
        {"{'type':'number','minimum':0.25,'maximum':0.75}",
         {"0.25", "0.5", "0.75", "0.3"},
         {"0.2", "0.76", "0", "1", "0.24999"},
         NULL},
        {"{'minimum':10}", {"10", "10.5", "99"}, {"9.9", "-10", "1"}, NULL},
        {"{'type':'number','minimum':1,'exclusiveMinimum':true}",
         {"1.5", "2"},
         {"1", "1.0", "0"},
         NULL},
        {"{'type':'integer','minimum':1.5,'maximum':3.5}",
         {"2", "3"},
         {"1", "4", "2.5"},
         NULL},
        {"{'type':'integer','maximum':5,'exclusiveMaximum':true}",
         {"4", "-9"},
         {"5", "6"},
         NULL},
        {"{'type':'integer','minimum':0,'maximum':18446744073709551615}",
         {"0", "18446744073709551615", "9223372036854775808"},
         {"-1", "18446744073709551616", "100000000000000000000"},
         NULL},
        {"{'type':'integer','minimum':9223372036854775807}",
         {"9223372036854775807", "9999999999999999999"},
         {"9223372036854775806", "5"},
         NULL},
        {"{'type':'integer','minimum':-170141183460469231731687303715884105728,"
         "'maximum':0}",
         {"0", "-170141183460469231731687303715884105728", "-7"},
         {"-170141183460469231731687303715884105729", "1"},
         NULL},
        {"{'type':'integer','exclusiveMinimum':18446744073709551614,"
         "'exclusiveMaximum':18446744073709551616}",
         {"18446744073709551615"},
         {"18446744073709551614", "18446744073709551616"},
         NULL},
        {"{'const':18446744073709551615}",
         {"18446744073709551615"},
         {"18446744073709551616", "18446744073709552000",
          "1.8446744073709552e19", "'18446744073709551615'"},
         NULL},
        {"{'type':'integer','enum':[99999999999999999999999999,"
         "-9223372036854775809,[9223372036854775808]]}",
         {"99999999999999999999999999", "-9223372036854775809"},
         {"1e26", "-9223372036854775808", "[9223372036854775808]"},
         NULL},
        {"{'enum':[0.1,[-2.5e-7,100.0],'0.10000000000000001']}",
         {"0.1", "[-2.5e-07,100.0]", "'0.10000000000000001'"},
         {"0.10000000000000001", "[-2.5e-07,100]", "'0.1'"},
         NULL},
        {"{'enum':[18446744073709551615,18446744073709551614],"
         "'not':{'const':18446744073709551615}}",
         {"18446744073709551614"},
         {"18446744073709551615"},
         NULL},
        {"{'type':'integer','minimum':1000000000000000000000000000000000000000"
         "00000000000000000000000000}",
         {"1"},
         {"'a'"},
         "#: minimum has too many digits"},
        {"{'type':'integer','format':'uint8'}",
         {"0", "255"},
         {"256", "-1"},
         NULL},
        {"{'type':'integer','format':'int32','minimum':0}",
         {"2147483647", "0"},
         {"2147483648", "-1"},
         NULL},
        {"{'type':'number','format':'double'}", {"0.5"}, {"'a'"}, NULL},
        {"{'type':'integer','multipleOf':5}",
         {"0", "5", "10", "-15", "1005"},
         {"1", "12", "-7", "05"},
         NULL},
        {"{'type':'integer','multipleOf':7}",
         {"0", "7", "14", "-21", "7007"},
         {"1", "8", "-22", "70a"},
         NULL},
        {"{'type':'integer','minimum':0,'maximum':100,'multipleOf':25}",
         {"0", "25", "100"},
         {"24", "125", "-25"},
         NULL},
        {"{'type':'integer','minimum':0,'multipleOf':60}",
         {"0", "60", "3600"},
         {"61", "-60", "30"},
         NULL},
        {"{'type':'number','multipleOf':0.01}",
         {"1", "1.5", "-3.25"},
         {"1.255", "0.001"},
         NULL},
        {"{'type':'number','multipleOf':0.5}",
         {"1", "1.5", "-2.0"},
         {"1.2", "0.25"},
         NULL},
        {"{'type':'number','minimum':0,'maximum':1,'multipleOf':0.25}",
         {"0.00", "0.25", "1.00"},
         {"0.3", "1.25"},
         NULL},
        {"{'type':'integer','minimum':99999993700000001,'maximum':"
         "99999996000000000,'multipleOf':999999937}",
         {"99999994699999937", "99999995699999874"},
         {"99999993700000000", "99999994699999936"},
         NULL},
        {"{'type':'number','exclusiveMinimum':-0.5,'maximum':0.76,"
         "'multipleOf':0.25}",
         {"-0.25", "0.00", "0.75"},
         {"-0.50", "1.00"},
         NULL},
        {"{'type':'integer','minimum':-21.5,'maximum':13.5,'multipleOf':7}",
         {"-21", "0", "7"},
         {"-28", "14"},
         NULL},
        {"{'type':'integer','multipleOf':18446744073709551616}",
         {"18"},
         {"1.5"},
         "#: multipleOf is not enforced"},
        {"{'type':'number','multipleOf':1}", {"3"}, {"3.5"}, NULL},
        {"{'type':'integer','minimum':3,'multipleOf':7}",
         {"7", "8"},
         {"2"},
         "#: multipleOf is not enforced"},
        {"{'type':'integer','nullable':true}", {"1", "null"}, {"'a'"}, NULL},
    };

    EXPECT(rows);
}

TEST(schema_keywords_of_arrays)
{
    static const struct row rows[] = {
        {"{'items':[{'const':1},{'const':2}],'additionalItems':{'const':3}}",
         {"[]", "[1,2]", "[1,2,3,3]"},
         {"[2]", "[1,3]", "[1,2,4]"},
         NULL},
        {"{'items':[{'const':1}],'additionalItems':false}",
         {"[]", "[1]"},
         {"[1,1]", "[2]"},
         NULL},
        {"{'prefixItems':[{'const':1}],'unevaluatedItems':false}",
         {"[1]"},
         {"[1,1]"},
         NULL},
        {"{'type':'array','items':false}", {"[]"}, {"[1]"}, NULL},
        {"{'type':'array','maxItems':99999999999999999999}",
         {"[]", "[1]"},
         {"1"},
         "#: maxItems above 2000 is not enforced"},
        {"{'type':'array','items':{'enum':['a','b','c']},'uniqueItems':true}",
         {"[]", "['b','a']", "['c', 'a', 'b']"},
         {"['a','a']", "['a','b','a']", "['d']"},
         NULL},
        {"{'type':'array','items':{'type':'boolean'},'uniqueItems':true,"
         "'minItems':1}",
         {"[true]", "[false,true]"},
         {"[]", "[true,true]"},
         NULL},
        {"{'type':'array','items':{'type':'string'},'uniqueItems':true}",
         {"['a','b']"},
         {"[1]"},
         "#: uniqueItems is enforced only for up to 6 constants"},
        {"{'type':'array','items':{'type':'integer'},'contains':{'const':7}}",
         {"[7]", "[1,7]", "[7,1]", "[1, 7, 2]"},
         {"[]", "[1]", "['7']"},
         NULL},
        {"{'contains':{'const':7},'minContains':2}",
         {"[7,7]", "[7,1,7]"},
         {"[7]", "[1,7]"},
         NULL},
        {"{'contains':{'const':7},'maxContains':2}",
         {"[7]"},
         {"[1]"},
         "#: maxContains is not enforced"},
        {"{'contains':{'const':7},'minContains':0}",
         {"[]", "[1]"},
         {"1"},
         NULL},
    };

    EXPECT(rows);
}

TEST(schema_keywords_of_objects)
{
    static const struct row rows[] = {
        /* an empty object as PHP encodes it */
        {"{'type':'object','properties':[]}", {"{}", "{'b':1}"}, {"1"}, NULL},
        {"{'patternProperties':{'^x_':{'type':'integer'}},"
         "'additionalProperties':false}",
         {"{}", "{'x_':1}", "{'x_a':1,'x_b':2}"},
         {"{'x_a':'b'}", "{'y':1}", "{'x':1}"},
         NULL},
        {"{'properties':{'a':{'const':1},'x_1':{}},'patternProperties':"
         "{'^x_':{'type':'integer'}}}",
         {"{}", "{'a':1,'x_1':5,'x_2':6}", "{'x_9':1}"},
         {"{'x_1':'b'}", "{'a':1,'a':1}", "{'x_2':null}", "{'b':1}"},
         NULL},
        {"{'patternProperties':{'^a':{'const':1},'b$':{'const':2}},"
         "'additionalProperties':{'const':3}}",
         {"{'a':1,'b':2,'c':3}", "{'xb':2}"},
         {"{'a':3}", "{'b':1}", "{'ab':2}", "{'c':1}"},
         NULL},
        /* a name that matches several patterns: all of their schemas */
        {"{'patternProperties':{'^a':{'type':'integer'},'b$':{'minimum':5},"
         "'^.{3}$':{'maximum':7}},'additionalProperties':false}",
         {"{'a':1,'b':5}", "{'ab':5}", "{'axb':6}", "{'xxx':1}", "{'axx':7}"},
         {"{'ab':4}", "{'axb':8}", "{'axb':4}", "{'xxx':8}", "{'ab':'c'}"},
         NULL},
        {"{'patternProperties':{'^a':{'const':1},'^b':{'const':2},'c$':"
         "{'type':'integer'},'d$':{'const':4},'e$':{'const':5}},"
         "'additionalProperties':false}",
         {"{'a':1,'b':2}", "{'xd':4,'xe':5,'xc':9}"},
         {"{'ad':1}", "{'ad':4}", "{'be':2}", "{'be':5}", "{'x':1}"},
         NULL},
        {"{'type':'object','propertyNames':{'pattern':'^[a-z]+$'}}",
         {"{}", "{'abc':1}"},
         {"{'A':1}", "{'':1}"},
         NULL},
        {"{'type':'object','propertyNames':{'enum':['a','b']},"
         "'additionalProperties':{'type':'integer'}}",
         {"{}", "{'a':1,'b':2}"},
         {"{'c':1}", "{'a':'x'}"},
         NULL},
        {"{'type':'object','propertyNames':{'maxLength':2},'minProperties':1}",
         {"{'a':1}", "{'ab':1,'c':2}"},
         {"{}", "{'abc':1}"},
         NULL},
        {"{'type':'object','additionalProperties':{'type':'null'},"
         "'minProperties':1,'maxProperties':2}",
         {"{'a':null}", "{'a':null,'b':null}"},
         {"{}", "{'a':null,'b':null,'c':null}", "{'a':1}"},
         NULL},
        {"{'properties':{'a':{'const':1},'b':{'const':2},'c':{'const':3}},"
         "'required':['b'],'minProperties':2}",
         {"{'a':1,'b':2}", "{'b':2,'c':3}", "{'a':1,'b':2,'c':3}"},
         {"{'b':2}", "{}", "{'a':1,'c':3}"},
         NULL},
        {"{'properties':{'a':{'const':1},'b':{'const':2},'c':{'const':3}},"
         "'maxProperties':1}",
         {"{}", "{'a':1}", "{'c':3}"},
         {"{'a':1,'b':2}"},
         NULL},
        {"{'type':'object','maxProperties':0}", {"{}"}, {"{'a':1}"}, NULL},
        {"{'properties':{'a':{'const':1},'b':{'const':2}},'dependentRequired':"
         "{'a':['b']}}",
         {"{}", "{'b':2}", "{'a':1,'b':2}"},
         {"{'a':1}"},
         NULL},
        {"{'properties':{'a':{'const':1},'b':{'type':'integer'}},"
         "'dependentSchemas':{'a':{'properties':{'b':{'const':5}},"
         "'required':['b']}}}",
         {"{}", "{'b':1}", "{'a':1,'b':5}"},
         {"{'a':1}", "{'a':1,'b':1}"},
         NULL},
        {"{'properties':{'a':{'const':1},'b':{'const':2}},'dependencies':"
         "{'b':['a']}}",
         {"{}", "{'a':1}", "{'a':1,'b':2}"},
         {"{'b':2}"},
         NULL},
        {"{'properties':{'a':{'const':1}},'unevaluatedProperties':false}",
         {"{'a':1}"},
         {"{'b':1}"},
         NULL},
        {"{'required':['a']}", {"{'a':1}"}, {"{}", "{'b':1}"}, NULL},
        {"{'type':'object','required':['a'],'additionalProperties':"
         "{'type':'integer'}}",
         {"{'a':1}"},
         {"{}", "{'a':'x'}"},
         NULL},
        {"{'properties':{'a':{'const':1}},'required':['b'],"
         "'additionalProperties':false}",
         {"{'a':1}", "{}"},
         {"{'b':1}"},
         "#: required names something that additionalProperties excludes"},
        {"{'properties':{'a':false,'b':{'const':1}}}",
         {"{}", "{'b':1}"},
         {"{'a':1}"},
         NULL},
        {"{'properties':{'a':{'type':'string','required':true}}}",
         {"{'a':'x'}"},
         {"{'a':1}"},
         "#/properties/a: required is not a list"},
        {"{'properties':{'\xc3\xa9':{'const':1}},'additionalProperties':true}",
         {"{}", "{'\xc3\xa9':1}"},
         {"{'\xc3\xa9':2}"},
         NULL},
        {"{'properties':{'a':{'const':1}},'items':null,'enum':null,"
         "'format':null}",
         {"{'a':1}"},
         {"{'a':2}"},
         NULL},
    };

    EXPECT(rows);
}

TEST(schema_keywords_that_combine_schemas)
{
    static const struct row rows[] = {
        {"{'allOf':[{'type':'string'},{'minLength':2},{'pattern':'^a'}]}",
         {"'ab'", "'abc'"},
         {"'a'", "'ba'", "1"},
         NULL},
        {"{'allOf':[{'type':'integer','minimum':3},{'maximum':5}]}",
         {"3", "5"},
         {"2", "6"},
         NULL},
        {"{'allOf':[{'type':['string','integer']},{'type':['integer','null']}]"
         "}",
         {"1"},
         {"'a'", "null"},
         NULL},
        {"{'allOf':[{'properties':{'a':{'type':'string'}},'required':['a']},"
         "{'properties':{'a':{'minLength':2},'b':{'const':1}}}]}",
         {"{'a':'xx'}", "{'a':'xx','b':1}"},
         {"{'a':'x'}", "{}"},
         NULL},
        {"{'$ref':'#/$defs/s','minLength':2,'$defs':{'s':{'type':'string'}}}",
         {"'ab'"},
         {"'a'", "1"},
         NULL},
        {"{'properties':{'a':{'$ref':'#/definitions/s','description':'x',"
         "'default':null}},'definitions':{'s':{'enum':['p','q']}}}",
         {"{'a':'p'}"},
         {"{'a':'r'}"},
         NULL},
        {"{'$ref':'#s','$defs':{'x':{'$anchor':'s','const':1}}}",
         {"1"},
         {"2"},
         NULL},
        {"{'$ref':'#/$defs/a%20b','$defs':{'a b':{'const':1}}}",
         {"1"},
         {"2"},
         NULL},
        {"{'$id':'http://x/r','items':{'$ref':'http://x/r#/$defs/a'},"
         "'$defs':{'a':{'const':1}}}",
         {"[1]"},
         {"[2]"},
         NULL},
        {"{'properties':{'a':{'$ref':'http://x/y.json'},'b':{'const':1}}}",
         {"{'a':[1],'b':1}"},
         {"{'b':2}"},
         "#/properties/a: $ref points outside the schema"},
        {"{'type':'object','properties':{'n':{'type':'integer'}},'anyOf':"
         "[{'required':['n']},{'maxProperties':0}]}",
         {"{'n':1}", "{}"},
         {"{'n':'a'}"},
         NULL},
        {"{'type':'string','oneOf':[{'enum':['a']},{'enum':['b']}]}",
         {"'a'", "'b'"},
         {"'c'", "1"},
         NULL},
        {"{'oneOf':[{'type':'number'},{'type':'integer'}]}",
         {"1", "1.5"},
         {"'a'"},
         "#: oneOf has alternatives that may both match"},
        {"{'anyOf':[false,{'const':1}]}", {"1"}, {"2"}, NULL},
        {"{'anyOf':[{'type':'string'},{'type':'null'}],'default':null}",
         {"'a'", "null"},
         {"1"},
         NULL},
        {"{'properties':{'k':{'enum':['a','b']},'n':{'type':'integer'}},"
         "'required':['k'],'if':{'properties':{'k':{'const':'a'}}},'then':"
         "{'required':['n']}}",
         {"{'k':'a','n':1}", "{'k':'b'}", "{'k':'b','n':1}"},
         {"{'k':'a'}", "{'k':'c'}"},
         NULL},
        {"{'type':['string','integer'],'if':{'type':'string'},'then':"
         "{'minLength':2},'else':{'minimum':5}}",
         {"'ab'", "5"},
         {"'a'", "4"},
         NULL},
        {"{'type':['string','null'],'not':{'type':'null'}}",
         {"'a'"},
         {"null"},
         NULL},
        {"{'enum':['a','b',1],'not':{'const':'a'}}",
         {"'b'", "1"},
         {"'a'"},
         NULL},
        {"{'properties':{'a':{},'b':{}},'not':{'required':['a','b']}}",
         {"{}", "{'a':1}", "{'b':1}"},
         {"{'a':1,'b':1}"},
         NULL},
        {"{'type':'integer','not':{'multipleOf':2}}",
         {"1"},
         {"'a'"},
         "#: not is not enforced"},
        {"{'type':'string','enum':['a','b',1,null]}",
         {"'a'", "'b'"},
         {"1", "null"},
         NULL},
        {"{'type':'integer','enum':['1','2']}",
         {"'1'"},
         {"1", "'3'"},
         "#: enum has no value that fits"},
        {"{'type':'string','nullable':true,'enum':['a']}",
         {"'a'", "null"},
         {"'b'"},
         NULL},
        {"{'type':'object','properties':{'kids':{'type':'array','items':"
         "{'allOf':[{'$ref':'#'},{'required':['id']}]}},'id':{'type':"
         "'integer'}}}",
         {"{}", "{'kids':[{'id':1}]}", "{'kids':[{'kids':[{'id':2}],'id':1}]}"},
         {"{'kids':[{}]}", "{'kids':[{'kids':[{}],'id':1}]}"},
         NULL},
        {"{'type':'object','title':'t','examples':[1],'example':1,"
         "'deprecated':true,'readOnly':true,'writeOnly':false,'$comment':'c',"
         "'x-order':1,'properties':{'a':{'const':1,'title':'A'}}}",
         {"{'a':1}"},
         {"{'a':2}"},
         NULL},
        {"{'type':'integer','minLenght':3}",
         {"1"},
         {"'a'"},
         "#: minLenght is not known, and ignored"},
        {"{'type':'string','minimum':3,'items':{'type':'integer'}}",
         {"'a'"},
         {"1", "[1]"},
         NULL},
        {"{'minLength':2,'minimum':5}", {"'ab'", "5"}, {"'a'", "4"}, NULL},
        {"{'allOf':[{'properties':{'a':{'const':1}},'additionalProperties':"
         "false},{'properties':{'b':{'const':2}}}]}",
         {"{'a':1,'b':2}"},
         {"{'c':1}", "{'a':2}"},
         "#: additionalProperties is taken to know the properties of all"},
    };

    EXPECT(rows);
}

/* Schemas that would be huge once they are combined are taken, with a note. */
TEST(schema_combinations_have_an_end)
{
    struct test_text t = {0};

    test_text_add(&t, "{'type':'object','allOf':[", 26);
    for (int i = 0; i < 9; i++) {
        char one[160];

        snprintf(one, sizeof one,
                 "%s{'anyOf':[{'properties':{'a%d':{'const':1}}},{'properties':"
                 "{'b%d':{'const':1}}}]}",
                 i ? "," : "", i, i);
        test_text_add(&t, one, strlen(one));
    }
    test_text_add(&t, "]}", 3);
    schema_try_expect(t.s, (const char *const[]){"{}", NULL},
                      (const char *const[]){"1", NULL},
                      "anyOf and other alternatives have too many");
    free(t.s);
}
