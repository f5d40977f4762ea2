/* Colours of code, a line at a time, so that of code that grows only its last
 * line is coloured anew. colourOf(language) returns a function of a line and
 * the state in which the last one ended, which returns [parts, state]: a part
 * is [class, text]. It returns null for a language that it does not know.
 *
 * A language is a row: how its comments and strings look, and its words. This
 * is no parser; what it cannot tell stays as it is. */
"use strict";
const colourOf = (() => {
  const MOST_LONG = 2000; /* characters of a line that is coloured */
  const words = s => new Set(s.trim().split(/\s+/));
  const NUMBER = "\\b(?:0[xX][\\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|" +
    "\\d[\\d_]*(?:\\.\\d[\\d_]*)?(?:[eE][+-]?\\d+)?)[\\w%]*";
  const DOUBLE = '"(?:[^"\\\\]|\\\\.)*"?', SINGLE = "'(?:[^'\\\\]|\\\\.)*'?";
  const LETTER = "'(?:[^'\\\\]|\\\\[^']+|\\\\')'"; /* 'a, a lifetime, is none */
  const SLASHES = "//.*", HASH = "(?<![^\\s;(])#.*", DASHES = "--(?!\\[\\[).*";
  const STARS = ["/\\*", "\\*/", "c"], TICKS = ["`", "`", "s"];
  const TRIPLE = ['"""', '"""', "s"], TRIPLE1 = ["'''", "'''", "s"];

  const C = `if else for while do switch case default break continue return
      goto static const extern volatile inline struct union enum typedef
      sizeof void int char float double long short unsigned signed bool true
      false restrict register auto _Bool _Static_assert NULL size_t int8_t
      int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t ssize_t`;
  const OBJECTS = `class public private protected new this super try catch
      throw finally true false null import package interface extends
      implements abstract final static if else for while do switch case
      default break continue return void int long double float boolean char
      byte short enum instanceof`;
  const JS = `async await break case catch class const continue debugger
      default delete do else export extends false finally for from function
      get if import in instanceof let new null of return set static super
      switch this throw true try typeof undefined var void while yield`;
  const SHELL = `if then else elif fi for in do done while until case esac
      function return exit local export readonly declare set unset shift
      source echo cd sudo true false`;
  const LANGUAGES = {
    "c h": {line: SLASHES, block: [STARS], one: LETTER, pre: 1, words: C},
    "cpp c++ cc cxx hpp hh cuda cu ino glsl hlsl opencl metal": {line: SLASHES,
      block: [STARS], one: LETTER, pre: 1, words: C + ` class public private
      protected virtual override final template typename namespace using new
      delete this throw try catch nullptr constexpr consteval constinit
      noexcept operator friend mutable explicit decltype concept requires
      static_cast dynamic_cast reinterpret_cast const_cast co_await
      co_return co_yield string vector __global__ __device__ __shared__ vec2
      vec3 vec4 mat4 uniform in out`},
    "java": {line: SLASHES, block: [STARS, TRIPLE], words: OBJECTS + ` throws
      synchronized transient volatile native record sealed permits var yield
      assert String`},
    "cs csharp c#": {line: SLASHES, block: [STARS], words: OBJECTS + ` using
      namespace string object decimal var get set async await override
      virtual sealed readonly const ref out in is as foreach internal struct
      delegate event params partial yield record where select from base lock
      unsafe nameof`},
    "kotlin kt kts": {line: SLASHES, block: [TRIPLE, STARS], words: `fun val
      var if else when for while do return break continue class object
      interface data sealed open override private public protected internal
      companion import package is as in null true false this super try catch
      finally throw by lazy suspend inline enum abstract lateinit init
      constructor where typealias`},
    "scala": {line: SLASHES, block: [TRIPLE, STARS], words: `def val var if
      else match case for while do yield return class object trait extends
      with override private protected import package new null true false
      this super try catch finally throw implicit given using lazy sealed
      abstract final type enum then`},
    "swift": {line: SLASHES, block: [TRIPLE, STARS], words: `func let var if
      else guard switch case default for in while repeat return break
      continue class struct enum protocol extension import init deinit self
      Self super nil true false try catch throw throws rethrows do as is
      static private public internal fileprivate open override mutating
      async await actor where defer some any inout typealias associatedtype
      weak lazy`},
    "js javascript jsx mjs cjs ts typescript tsx vue svelte": {line: SLASHES,
      block: [STARS, TICKS], words: JS + ` type interface enum implements
      namespace declare readonly private public protected abstract as is
      keyof infer never unknown any string number boolean satisfies`},
    "go golang": {line: SLASHES, block: [STARS, TICKS], words: `break case
      chan const continue default defer else fallthrough for func go goto if
      import interface map package range return select struct switch type
      var nil true false iota string int int8 int16 int32 int64 uint uint8
      uint16 uint32 uint64 float32 float64 byte rune bool error any make len
      cap append new panic recover`},
    "rust rs": {line: SLASHES, block: [STARS], one: LETTER, words: `as async
      await break const continue crate dyn else enum extern false fn for if
      impl in let loop match mod move mut pub ref return self Self static
      struct super trait true type unsafe use where while i8 i16 i32 i64
      i128 u8 u16 u32 u64 u128 usize isize f32 f64 bool char str String Vec
      Option Result Some None Ok Err Box`},
    "zig": {line: SLASHES, words: `const var fn pub return if else while for
      switch break continue struct enum union error try catch defer errdefer
      comptime inline export extern test unreachable null undefined true
      false orelse and or usize u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool
      void type anytype`},
    "dart": {line: SLASHES, block: [TRIPLE, STARS], words: OBJECTS + ` var
      final const late required dynamic async await yield Future Stream
      String List Map mixin with factory get set is as in on library part
      export`},
    "php": {line: "(?://|#).*", block: [STARS], sigil: "\\$\\w+",
      words: OBJECTS + ` function echo foreach as use namespace trait array
      isset unset empty global require require_once include include_once fn
      match readonly string bool mixed self parent`},
    "python py python3 ipython pyi": {line: "#.*", block: [
      ['[rRbBfFuU]{0,2}"""', '"""', "s"], ["[rRbBfFuU]{0,2}'''", "'''", "s"]],
    string: `[rRbBfFuU]{0,2}(?:${DOUBLE}|${SINGLE})`, sigil: "@[\\w.]+",
    words: `and as assert async await break class continue def del elif else
      except False finally for from global if import in is lambda None
      nonlocal not or pass raise return True try while with yield match case
      self print int str float bool list dict set tuple bytes object len
      range super`},
    "ruby rb": {line: "#.*", sigil: "@{1,2}\\w+|(?<![:\\w]):\\w+", words: `def
      end if elsif else unless while until for in do return class module
      begin rescue ensure raise yield self nil true false and or not then
      case when break next redo retry require require_relative attr_accessor
      attr_reader include extend puts lambda proc new super alias`},
    "perl pl": {line: HASH, sigil: "[$@%]\\w+", words: `my our local sub if
      elsif else unless while until for foreach return use package require
      last next print die eval and or not eq ne lt gt le ge cmp qw undef
      shift push`},
    "lua": {line: DASHES, block: [["--\\[\\[", "\\]\\]", "c"],
      ["\\[\\[", "\\]\\]", "s"]], words: `and break do else elseif end false
      for function goto if in local nil not or repeat return then true until
      while self`},
    "sh bash zsh shell console shell-session ksh fish": {line: HASH,
      sigil: "\\$(?:\\w+|[@#?*!$-]|\\{[^}]*\\})|(?<=^|\\s)--?[A-Za-z][\\w-]*",
      words: SHELL},
    "powershell ps1 pwsh": {line: HASH, block: [["<#", "#>", "c"]], fold: 1,
      sigil: "\\$\\w+|(?<=\\s)-\\w+", words: `function param if elseif else
      foreach for while do switch return try catch finally throw begin
      process end in break continue`},
    "dockerfile docker containerfile": {line: HASH, sigil: "\\$\\{?\\w+\\}?",
      words: `FROM AS RUN CMD LABEL EXPOSE ENV ADD COPY ENTRYPOINT VOLUME
      USER WORKDIR ARG ONBUILD STOPSIGNAL HEALTHCHECK SHELL`},
    "makefile make mk": {line: HASH, sigil: "\\$\\([^)]*\\)|\\$\\$?[@<^*?\\w]",
      key: "^[\\w./%-]+(?=\\s*:(?!=))|^\\w+(?=\\s*[:?+]?=)", words: `ifeq
      ifneq ifdef ifndef else endif include define endef export override`},
    "cmake": {line: HASH, sigil: "\\$\\{[^}]*\\}", fold: 1, words: `if else
      elseif endif foreach endforeach while endwhile function endfunction
      macro endmacro set include option project return`},
    "sql mysql postgresql postgres sqlite plsql": {line: "--.*", block: [STARS],
      fold: 1, words: `select from where and or not in is null as join left
      right inner outer full cross on using group by order having limit
      offset union all distinct insert into values update set delete create
      table view index alter add column drop primary key foreign references
      unique default constraint check exists between like ilike case when
      then else end with recursive returning over partition asc desc begin
      commit rollback count sum avg min max coalesce cast int integer bigint
      text varchar char date timestamp boolean numeric decimal serial true
      false if replace explain analyze grant to trigger function returns
      language`},
    "r": {line: "#.*", words: `if else for while repeat function return next
      break TRUE FALSE NULL NA NaN Inf in library require`},
    "julia jl": {line: "#(?!=).*", block: [["#=", "=#", "c"], TRIPLE],
      one: LETTER, sigil: "@\\w+", words: `function end if elseif else for
      while do return break continue begin let local global const struct
      mutable abstract type module using import export try catch finally
      throw true false nothing in where macro quote isa`},
    "matlab octave": {line: "%.*", words: `function end if elseif else for
      while switch case otherwise return break continue try catch global
      persistent true false`},
    "haskell hs elm": {line: DASHES, block: [["\\{-", "-\\}", "c"]],
      one: LETTER, words: `module where import qualified as hiding data type
      newtype class instance deriving if then else case of let in do forall
      infixl infixr Maybe Just Nothing Either Left Right True False IO Int
      Integer String`},
    "ocaml ml fsharp fs f#": {line: "//.*", block: [["\\(\\*", "\\*\\)", "c"]],
      one: LETTER, words: `let rec in match with fun function if then else
      type module struct sig end open of and begin try raise mutable ref
      true false val member static new namespace for to do done while when
      as`},
    "elixir ex exs erlang": {line: "#.*", block: [TRIPLE], sigil:
      "@\\w+|(?<![:\\w]):\\w+", words: `def defp defmodule defmacro
      defstruct do end if else unless case cond with fn when and or not in
      true false nil import alias use require for receive after try rescue
      raise`},
    "clojure clj lisp scheme racket elisp emacs-lisp": {line: ";.*",
      one: "(?!)", sigil: "(?<=[\\s(\\[]):[\\w-]+", words: `def defn defun
      define let lambda fn if cond when do loop recur ns require nil true
      false setq begin else quote defmacro defvar`},
    "asm nasm assembly x86asm armasm": {line: "[;#].*", sigil:
      "%\\w+|^\\s*\\.?[\\w.]+:", words: `mov add sub mul div push pop call
      ret jmp je jne jz jnz jg jl cmp test lea xor and or not shl shr inc
      dec nop int syscall section global extern db dw dd dq ldr str b bl eax
      ebx ecx edx rax rbx rcx rdx rsi rdi rsp rbp`},
    "latex tex": {line: "(?<!\\\\)%.*", string: "\\$[^$]*\\$?", sigil:
      "\\\\(?:[A-Za-z]+\\*?|.)", words: ""},
    "css scss less sass": {line: "(?<=^|[\\s;{}])//.*", block: [STARS], sigil:
      "[@$][\\w-]+|--[\\w-]+|#[\\da-fA-F]{3,8}\\b|![a-z]+", key:
      "(?<=^|[\\s;{])[a-z-]+(?=\\s*:)", words: ""},
    "json jsonc json5 jsonl ndjson": {line: SLASHES, block: [STARS], key:
      '"(?:[^"\\\\]|\\\\.)*"(?=\\s*:)', words: "true false null"},
    "yaml yml": {line: HASH, key: "(?<=^\\s*(?:- )*)[\\w./\"'-]+" +
      "(?=\\s*:(?:\\s|$))", sigil: "(?<=\\s)[&*!][\\w!-]+", words:
      "true false null yes no on off"},
    "toml ini conf cfg properties editorconfig env dotenv systemd nginx": {
      line: "(?<=^|\\s)[#;].*", block: [TRIPLE, TRIPLE1], key:
      "^\\s*[\\w.\"-]+(?=\\s*=)", sigil: "^\\s*\\[.*\\]", words:
      "true false yes no on off"},
    "graphql gql proto protobuf thrift terraform hcl tf nix": {
      line: "(?://|#).*", block: [STARS, TRIPLE], words: `type query
      mutation subscription fragment on input enum interface union scalar
      schema extend implements true false null syntax message service rpc
      returns repeated optional required oneof map package import string
      int32 int64 bool bytes resource variable output module provider data
      locals let in with rec inherit if then else`},
    "html xml svg xhtml rss plist htm": {line: "(?!)", block: [
      ["<!--", "-->", "c"]], sigil: "</?[A-Za-z][\\w:.-]*|/?>|<[!?]\\w+",
    key: "(?<=\\s)[A-Za-z_:@][\\w:.-]*(?==)", string: `(?<==)(?:${DOUBLE}|` +
      `${SINGLE})|&#?\\w+;`, words: "", bare: 1},
    "diff patch": {line: "^(?:@@|diff |index |--- |\\+\\+\\+ ).*",
      key: "^\\+.*", string: "^-.*", words: "", bare: 1}};
  const rows = new Map();
  for (const [names, row] of Object.entries(LANGUAGES))
    for (const name of names.split(" ")) rows.set(name, row);

  /* A row as one expression: an alternative a class, blocks first. */
  function compile(row) {
    const block = row.block || [], none = "(?!)";
    const known = words(row.fold ? row.words.toLowerCase() : row.words);
    const all = new RegExp([...block.map(b => b[0]), row.line,
      row.key || none, row.string || DOUBLE + "|" + (row.one || SINGLE),
      row.sigil || none, row.pre ? "^\\s*#\\s*\\w+" : none,
      row.bare ? none : NUMBER,
      row.bare ? none : "[A-Za-z_$\\u00c0-\\uffff][\\w$\\u00c0-\\uffff]*"]
      .map(s => `(${s})`).join("|"), "g");
    const classes = [...block.map(b => b[2]), "c", "a", "s", "t", "k", "n"];
    const ends = block.map(b => new RegExp(b[1], "g"));
    const wordClass = (w, next) => known.has(row.fold ? w.toLowerCase() : w)
      ? "k" : next === "(" ? "f" : "";
    return (line, state) => {
      const parts = [];
      let at = 0;
      const add = (kind, to) => {
        if (to > at) parts.push([kind, line.slice(at, to)]);
        at = Math.max(at, to);
      };
      const close = () => { /* of the block `state` - 1 */
        const end = ends[state - 1];
        end.lastIndex = at;
        const m = end.exec(line);
        return m ? m.index + m[0].length : 0;
      };
      if (line.length > MOST_LONG) return [[["", line]], state];
      if (state) {
        const end = close();
        add(classes[state - 1], end || line.length);
        if (!end) return [parts, state];
      }
      for (;;) {
        all.lastIndex = at;
        const m = all.exec(line);
        if (!m || !m[0]) break;
        let k = 1;
        while (m[k] === undefined) k++;
        add("", m.index);
        const end = m.index + m[0].length;
        if (k <= block.length) {
          const from = at;
          at = end;
          state = k;
          const closed = close();
          at = from;
          add(classes[k - 1], closed || line.length);
          if (!closed) return [parts, state];
        } else {
          add(k - 1 < classes.length ? classes[k - 1]
            : wordClass(m[0], line[end]), end);
        }
      }
      add("", line.length);
      return [parts, 0];
    };
  }
  const compiled = new Map();
  return name => {
    const row = rows.get(name.toLowerCase());
    if (!row) return null;
    if (!compiled.has(row)) compiled.set(row, compile(row));
    return compiled.get(row);
  };
})();
