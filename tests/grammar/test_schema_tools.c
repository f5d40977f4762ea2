/* Schemas as the tools of coding clients and their libraries write them: all
 * are taken, and what they require is enforced as far as `note` says. */
#include "lib/schema_try.h"
#include "lib/support.h"

enum { MOST = 5 };

/* Schemas, documents that they allow and do not allow, and a part of the notes;
 * `note` is NULL if everything is enforced. */
static const struct row {
    const char *of, *schema, *in[MOST], *out[MOST], *note;
} rows[] = {
    {"a shell command as a list, with a time limit",
     "{'type':'object','properties':{'command':{'type':'array','items':{'type':"
     "'string'},'description':'Program and arguments'},'workdir':{'type':"
     "'string'},'timeout_ms':{'type':'number','minimum':0},'escalate':{'type':"
     "'boolean','default':false}},'required':['command'],"
     "'additionalProperties':false}",
     {"{'command':['ls','-l']}", "{'command':[],'timeout_ms':0.5}"},
     {"{}", "{'command':'ls'}", "{'command':[],'timeout_ms':-1}"},
     NULL},
    {"a patch as text",
     "{'type':'object','properties':{'input':{'type':'string','description':"
     "'The whole patch'}},'required':['input'],'additionalProperties':false,"
     "'$schema':'http://json-schema.org/draft-07/schema#'}",
     {"{'input':'*** Begin\\n'}"},
     {"{'patch':'x'}", "{'input':1}"},
     NULL},
    {"reading a part of a file",
     "{'$schema':'https://json-schema.org/draft/2020-12/schema','type':"
     "'object','properties':{'file_path':{'type':'string'},'offset':{'type':"
     "'integer','minimum':0,'maximum':9007199254740991},'limit':{'type':"
     "'integer','exclusiveMinimum':0,'maximum':9007199254740991},'pages':"
     "{'type':'string','pattern':'^\\\\d+(?:-\\\\d+)?$'}},'required':"
     "['file_path'],'additionalProperties':false}",
     {"{'file_path':'/a','offset':0,'limit':1}",
      "{'file_path':'a','pages':'1-20'}"},
     {"{'file_path':'a','limit':0}", "{'file_path':'a','pages':'1-'}",
      "{'file_path':'a','offset':-1}"},
     NULL},
    {"several edits of a file",
     "{'type':'object','properties':{'file_path':{'type':'string'},'edits':"
     "{'type':'array','minItems':1,'items':{'type':'object','properties':"
     "{'old_string':{'type':'string'},'new_string':{'type':'string'},"
     "'replace_all':{'type':'boolean','default':false}},'required':"
     "['old_string','new_string'],'additionalProperties':false}}},'required':"
     "['file_path','edits'],'additionalProperties':false}",
     {"{'file_path':'a','edits':[{'old_string':'x','new_string':''}]}"},
     {"{'file_path':'a','edits':[]}",
      "{'file_path':'a','edits':[{'old_string':'x'}]}"},
     NULL},
    {"a list of things to do",
     "{'type':'object','properties':{'todos':{'type':'array','items':{'type':"
     "'object','properties':{'content':{'type':'string','minLength':1},"
     "'status':{'type':'string','enum':['pending','in_progress','completed']},"
     "'id':{'type':'string'}},'required':['content','status'],"
     "'additionalProperties':false}}},'required':['todos'],"
     "'additionalProperties':false}",
     {"{'todos':[{'content':'x','status':'pending'}]}", "{'todos':[]}"},
     {"{'todos':[{'content':'','status':'pending'}]}",
      "{'todos':[{'content':'x','status':'done'}]}"},
     NULL},
    {"fetching a page and searching",
     "{'type':'object','properties':{'url':{'type':'string','format':'uri'},"
     "'prompt':{'type':'string'},'allowed_domains':{'type':'array','items':"
     "{'type':'string'}},'query':{'type':'string','minLength':2}},'required':"
     "['url','prompt'],'additionalProperties':false}",
     {"{'url':'https://a.org/b?c','prompt':'x'}"},
     {"{'url':'a b','prompt':'x'}", "{'url':'https://a.org'}"},
     NULL},
    {"a question with options, as zod writes it",
     "{'type':'object','properties':{'questions':{'type':'array','minItems':1,"
     "'maxItems':4,'items':{'type':'object','properties':{'question':{'type':"
     "'string'},'header':{'type':'string','maxLength':12},'options':{'type':"
     "'array','minItems':2,'maxItems':4,'items':{'type':'object','properties':"
     "{'label':{'type':'string'}},'required':['label']}},'multiSelect':{'type':"
     "'boolean'}},'required':['question','options']}},'answers':{'type':"
     "'object','propertyNames':{'type':'string'},'additionalProperties':"
     "{'type':'string'}}},'required':['questions']}",
     {"{'questions':[{'question':'q','options':[{'label':'a'},{'label':"
      "'b'}]}],'answers':{'q':'a'}}"},
     {"{'questions':[]}",
      "{'questions':[{'question':'q','options':[{'label':'a'}]}]}",
      "{'questions':[{'question':'q','header':'0123456789abc','options':"
      "[{'label':'a'},{'label':'b'}]}]}"},
     NULL},
    {"a file system over MCP",
     "{'type':'object','properties':{'path':{'type':'string'},'tail':{'type':"
     "'number'},'sortBy':{'type':'string','enum':['name','size'],'default':"
     "'name'},'excludePatterns':{'type':'array','items':{'type':'string'},"
     "'default':[]}},'required':['path'],'additionalProperties':false,"
     "'$schema':'http://json-schema.org/draft-07/schema#'}",
     {"{'path':'/','sortBy':'size'}"},
     {"{'path':'/','sortBy':'date'}", "{'tail':1}"},
     NULL},
    {"an issue tracker over MCP",
     "{'type':'object','properties':{'owner':{'type':'string'},'issue_number':"
     "{'type':'number'},'perPage':{'type':'number','minimum':1,'maximum':100},"
     "'state':{'enum':['OPEN','CLOSED'],'type':'string'},'since':{'type':"
     "'string','format':'date-time'},'labels':{'items':{'type':'string'},"
     "'type':'array','uniqueItems':true}},'required':['owner']}",
     {"{'owner':'a','perPage':100,'state':'OPEN','since':"
      "'2024-01-30T23:59:00Z'}"},
     {"{'owner':'a','perPage':0}", "{'owner':'a','perPage':100.5}",
      "{'owner':'a','since':'today'}"},
     "uniqueItems"},
    {"a browser over MCP",
     "{'type':'object','properties':{'element':{'type':'string'},'ref':{'type':"
     "'string'},'button':{'type':'string','enum':['left','right','middle']},"
     "'modifiers':{'type':'array','items':{'type':'string','enum':['Alt',"
     "'Control','Shift']}},'fields':{'type':'array','items':{'type':'object',"
     "'properties':{'name':{'type':'string'},'type':{'type':'string','enum':"
     "['textbox','checkbox']},'value':{'type':['string','boolean']}},"
     "'required':['name','type','value'],'additionalProperties':false}}},"
     "'required':['element','ref'],'additionalProperties':false}",
     {"{'element':'e','ref':'r','modifiers':['Alt','Alt']}",
      "{'element':'e','ref':'r','fields':[{'name':'n','type':'checkbox',"
      "'value':true}]}"},
     {"{'element':'e','ref':'r','button':'x'}",
      "{'element':'e','ref':'r','fields':[{'name':'n','type':'checkbox',"
      "'value':1}]}"},
     NULL},
    {"a graph of entities over MCP",
     "{'type':'object','properties':{'entities':{'type':'array','items':"
     "{'type':'object','properties':{'name':{'type':'string'},'observations':"
     "{'type':'array','items':{'type':'string'}}},'required':['name',"
     "'observations'],'additionalProperties':true}}},'required':['entities'],"
     "'additionalProperties':false}",
     {"{'entities':[{'name':'a','observations':[],'x':1}]}"},
     {"{'entities':[{'name':'a'}]}"},
     NULL},
    {"steps of thinking over MCP",
     "{'type':'object','properties':{'thought':{'type':'string'},"
     "'nextThoughtNeeded':{'type':'boolean'},'thoughtNumber':{'type':'integer',"
     "'minimum':1},'branchId':{'type':'string'}},'required':['thought',"
     "'nextThoughtNeeded','thoughtNumber']}",
     {"{'thought':'a','nextThoughtNeeded':true,'thoughtNumber':1}"},
     {"{'thought':'a','nextThoughtNeeded':true,'thoughtNumber':0}"},
     NULL},
    {"a server in Rust, as schemars writes it",
     "{'$schema':'http://json-schema.org/draft-07/schema#','title':'Params',"
     "'type':'object','required':['count','mode'],'properties':{'count':"
     "{'type':'integer','format':'uint','minimum':0.0},'depth':{'type':"
     "['integer','null'],'format':'uint8','minimum':0.0},'mode':{'$ref':"
     "'#/definitions/Mode'},'id':{'type':'integer','format':'uint64','maximum':"
     "18446744073709551615,'minimum':0.0}},'definitions':{'Mode':{'oneOf':"
     "[{'description':'a','type':'string','enum':['Fast']},{'type':'object',"
     "'required':['Slow'],'properties':{'Slow':{'type':'number','format':"
     "'float'}},'additionalProperties':false}]}}}",
     {"{'count':1,'mode':'Fast'}",
      "{'count':0,'depth':255,'mode':{'Slow':1.5}}",
      "{'count':0,'depth':null,'mode':'Fast','id':9999999999999999999}"},
     {"{'count':-1,'mode':'Fast'}", "{'count':1,'depth':256,'mode':'Fast'}",
      "{'count':1,'mode':'Slow'}"},
     NULL},
    {"a model in Python, as pydantic writes it",
     "{'$defs':{'Cat':{'properties':{'kind':{'const':'cat','title':'Kind',"
     "'type':'string'},'lives':{'default':9,'title':'Lives','type':'integer'}},"
     "'required':['kind'],'title':'Cat','type':'object'},'Dog':{'properties':"
     "{'kind':{'const':'dog','title':'Kind','type':'string'},'good':{'type':"
     "'boolean'}},'required':['kind','good'],'title':'Dog','type':'object'}},"
     "'properties':{'pet':{'discriminator':{'mapping':{'cat':'#/$defs/Cat',"
     "'dog':'#/$defs/Dog'},'propertyName':'kind'},'oneOf':[{'$ref':"
     "'#/$defs/Cat'},{'$ref':'#/$defs/Dog'}],'title':'Pet'},'when':{'anyOf':"
     "[{'format':'date','type':'string'},{'type':'null'}],'default':null},"
     "'ratio':{'exclusiveMinimum':0,'maximum':1,'type':'number'},'point':"
     "{'maxItems':2,'minItems':2,'prefixItems':[{'type':'integer'},{'type':"
     "'string'}],'type':'array'},'extra':{'additionalProperties':true,'type':"
     "'object'}},'required':['pet','ratio'],'title':'M','type':'object'}",
     {"{'pet':{'kind':'cat'},'ratio':1}",
      "{'pet':{'kind':'dog','good':true},'when':null,'ratio':0.5,'point':[1,"
      "'a'],'extra':{'x':[1]}}"},
     {"{'pet':{'kind':'dog'},'ratio':1}", "{'pet':{'kind':'cat'},'ratio':0}",
      "{'pet':{'kind':'cat'},'ratio':1,'point':[1]}",
      "{'pet':{'kind':'cat'},'when':'x','ratio':1}"},
     NULL},
    {"a decimal and an address, as pydantic writes them",
     "{'properties':{'price':{'anyOf':[{'minimum':0,'type':'number'},"
     "{'pattern':'^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$','type':'string'}]},"
     "'mail':{'format':'email','type':'string'},'site':{'format':'uri',"
     "'maxLength':2083,'minLength':1,'type':'string'},'ip':{'format':'ipv4',"
     "'type':'string'},'wait':{'format':'duration','type':'string'}},"
     "'required':['price'],'type':'object'}",
     {"{'price':1.5}", "{'price':'12.50','mail':'a@b.org'}"},
     {"{'price':-1}", "{'price':'x'}", "{'price':1,'mail':'a'}"},
     "maxLength"},
    {"an address, as zod 4 writes it",
     "{'type':'object','properties':{'email':{'type':'string','format':'email',"
     "'pattern':'^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_+\\\\-\\\\.]*)"
     "[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$'},"
     "'slug':{'type':'string','minLength':1,'maxLength':30,'pattern':"
     "'^[a-z0-9]+(?:-[a-z0-9]+)*$'},'age':{'type':'integer','minimum':"
     "-9007199254740991,'maximum':9007199254740991},'tags':{'type':'object',"
     "'propertyNames':{'type':'string','enum':['a','b']},"
     "'additionalProperties':{'type':'number'},'required':['a']}},'required':"
     "['email'],'additionalProperties':false}",
     {"{'email':'x.y@a.org','slug':'a-b','tags':{'a':1}}"},
     {"{'email':'.y@a.org'}", "{'email':'x..y@a.org'}",
      "{'email':'x@a.org','slug':'a-'}", "{'email':'x@a.org','tags':{'b':1}}"},
     NULL},
    {"a union and a tuple, as zod 3 writes them",
     "{'type':'object','properties':{'target':{'anyOf':[{'type':'object',"
     "'properties':{'kind':{'type':'string','const':'id'},'id':{'type':'string'"
     ","
     "'format':'uuid'}},'required':['kind','id'],'additionalProperties':false},"
     "{'type':'object','properties':{'kind':{'type':'string','const':'name'},"
     "'name':{'type':'string'}},'required':['kind','name'],"
     "'additionalProperties':false}]},'range':{'type':'array','minItems':2,"
     "'maxItems':2,'items':[{'type':'number'},{'type':'number'}]},'any':{},"
     "'note':{'type':['string','null']}},'required':['target'],"
     "'additionalProperties':false,'$schema':"
     "'http://json-schema.org/draft-07/schema#'}",
     {"{'target':{'kind':'name','name':'x'},'range':[1,2.5],'any':[{}]}"},
     {"{'target':{'kind':'id','name':'x'}}",
      "{'target':{'kind':'name','name':'x'},'range':[1]}"},
     NULL},
    {"an operation of OpenAPI 3.0",
     "{'type':'object','properties':{'size':{'type':'integer','format':'int32',"
     "'minimum':1,'exclusiveMinimum':false,'maximum':50,'example':10},'sort':"
     "{'type':'string','enum':['asc','desc'],'nullable':true},'owner':"
     "{'allOf':[{'type':'object','properties':{'id':{'type':'integer','format':"
     "'int64'}},'required':['id']}],'nullable':true,'readOnly':true},'body':"
     "{'type':'string','format':'binary'},'x-internal':{'type':'string'}},"
     "'x-order':['size'],'xml':{'name':'q'}}",
     {"{'size':1,'sort':null,'owner':null}", "{'owner':{'id':5}}"},
     {"{'size':0}", "{'sort':'x'}", "{'owner':{}}"},
     NULL},
    {"answers in strict mode, with a recursive part",
     "{'type':'object','properties':{'steps':{'type':'array','items':{'$ref':"
     "'#/$defs/step'}},'ui':{'$ref':'#/$defs/node'}},'required':['steps','ui'],"
     "'additionalProperties':false,'$defs':{'step':{'type':'object',"
     "'properties':{'text':{'type':'string'},'score':{'type':'number','minimum'"
     ":"
     "0,'maximum':10,'multipleOf':0.5}},'required':['text','score'],"
     "'additionalProperties':false},'node':{'type':'object','properties':"
     "{'tag':{'type':'string','enum':['div','p']},'children':{'type':'array',"
     "'items':{'$ref':'#/$defs/node'}}},'required':['tag','children'],"
     "'additionalProperties':false}}}",
     {"{'steps':[{'text':'a','score':2.5}],'ui':{'tag':'div','children':[{'tag'"
      ":'p','children':[]}]}}"},
     {"{'steps':[{'text':'a','score':2.2}],'ui':{'tag':'p','children':[]}}",
      "{'steps':[],'ui':{'tag':'p'}}"},
     NULL},
    {"a condition between fields",
     "{'type':'object','properties':{'kind':{'enum':['file','url']},'path':"
     "{'type':'string'},'url':{'type':'string'}},'required':['kind'],'allOf':"
     "[{'if':{'properties':{'kind':{'const':'file'}}},'then':{'required':"
     "['path']}},{'if':{'properties':{'kind':{'const':'url'}}},'then':"
     "{'required':['url']}}]}",
     {"{'kind':'file','path':'a'}", "{'kind':'url','url':'a'}"},
     {"{'kind':'file'}", "{'kind':'url','path':'a'}"},
     NULL},
    {"settings with any keys",
     "{'type':'object','properties':{'env':{'type':'object',"
     "'patternProperties':{'^[A-Z_]+$':{'type':'string'}},"
     "'additionalProperties':false},'limits':{'type':'object',"
     "'additionalProperties':{'type':'integer','minimum':0},'minProperties':"
     "1}}}",
     {"{'env':{'A_B':'x'},'limits':{'a':1}}"},
     {"{'env':{'a':'x'}}", "{'limits':{}}", "{'limits':{'a':-1}}"},
     NULL},
    {"a remote definition",
     "{'type':'object','properties':{'geo':{'$ref':"
     "'https://geojson.org/schema/Point.json'},'n':{'type':'integer'}},"
     "'required':['geo']}",
     {"{'geo':{'a':1},'n':1}"},
     {"{'n':1}", "{'geo':1,'n':'x'}"},
     "points outside the schema"},
};

TEST(schema_tools_of_clients_are_taken)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        schema_try_expect(rows[i].schema, rows[i].in, rows[i].out,
                          rows[i].note ? rows[i].note : "");
}
