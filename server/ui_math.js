/* Formulas of LaTeX as MathML, which browsers draw without fonts of their own.
 * mathOf(tex, display) makes a <math> element, or returns null if the formula
 * is malformed: the page then shows the source. A command that is not known
 * stands there by its name. Only elements are made, never markup, and nothing
 * that could fetch or run.
 *
 * MathML here is MathML Core (www.w3.org/TR/mathml-core), which browsers have
 * in common: letters of other alphabets are characters of their own, and lines,
 * boxes and columns are CSS. Most commands are rows of the tables below. */
"use strict";
const mathOf = (() => {
  const words = s => s.trim().split(/\s+/);
  const pairs = s => {
    const all = new Map(), w = words(s);
    for (let i = 0; i < w.length; i += 2) all.set(w[i], w[i + 1]);
    return all;
  };

  /* Letters and ordinary symbols. Capital Greek ones stand upright. */
  const LETTERS = pairs(`alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε
    zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ varkappa ϰ lambda λ mu μ
    nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ
    upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω digamma ϝ imath ı jmath ȷ
    ell ℓ partial ∂`);
  const UPRIGHT = pairs(`Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ
    Upsilon Υ Phi Φ Psi Ψ Omega Ω varGamma Γ varDelta Δ varTheta Θ varOmega Ω
    infty ∞ nabla ∇ emptyset ∅ varnothing ∅ hbar ℏ hslash ℏ Re ℜ Im ℑ wp ℘
    aleph ℵ beth ℶ gimel ℷ forall ∀ exists ∃ nexists ∄ top ⊤ bot ⊥ angle ∠
    measuredangle ∡ sphericalangle ∢ triangle △ triangledown ▽ square □ Box □
    blacksquare ■ qedsymbol □ Diamond ◊ lozenge ◊ diamondsuit ♢ heartsuit ♡
    spadesuit ♠ clubsuit ♣ flat ♭ natural ♮ sharp ♯ degree ° prime ′
    backprime ‵ complement ∁ dagger † ddagger ‡ dag † ddag ‡ S § P ¶
    copyright © pounds £ yen ¥ euro € checkmark ✓ maltese ✠ mho ℧ eth ð
    ldots … dots … dotsc … dotso … textellipsis … vdots ⋮ ddots ⋱ iddots ⋰
    bigstar ★ Finv Ⅎ Game ⅁ aa å ae æ AE Æ oe œ OE Œ ss ß o ø O Ø
    blacktriangle ▲ blacktriangledown ▼ blacklozenge ⧫ AA Å`);
  const OPERATORS = pairs(`pm ± mp ∓ times × div ÷ cdot ⋅ cdotp ⋅ ast ∗ star ⋆
    circ ∘ bullet ∙ cap ∩ cup ∪ uplus ⊎ sqcap ⊓ sqcup ⊔ vee ∨ lor ∨ wedge ∧
    land ∧ lnot ¬ neg ¬ setminus ∖ smallsetminus ∖ wr ≀ diamond ⋄ amalg ⨿
    oplus ⊕ ominus ⊖ otimes ⊗ oslash ⊘ odot ⊙ bigcirc ◯ bigtriangleup △
    bigtriangledown ▽ triangleleft ◁ triangleright ▷ ltimes ⋉ rtimes ⋊
    bowtie ⋈ Join ⋈ dotplus ∔ intercal ⊺ barwedge ⊼ veebar ⊻ boxplus ⊞
    boxminus ⊟ boxtimes ⊠ boxdot ⊡ circledast ⊛ circledcirc ⊚ cdots ⋯
    dotsb ⋯ dotsm ⋯ dotsi ⋯ colon : And &
    le ≤ leq ≤ ge ≥ geq ≥ lt < gt > ne ≠ neq ≠ equiv ≡ sim ∼ simeq ≃ approx ≈
    approxeq ≊ cong ≅ ncong ≇ propto ∝ varpropto ∝ asymp ≍ doteq ≐ doteqdot ≑
    triangleq ≜ coloneqq ≔ coloneq ≔ eqqcolon ≕ eqcirc ≖ circeq ≗ models ⊨
    vdash ⊢ dashv ⊣ vDash ⊨ Vdash ⊩ Vvdash ⊪ nvdash ⊬ nvDash ⊭ perp ⟂
    parallel ∥ nparallel ∦ mid ∣ nmid ∤ in ∈ notin ∉ ni ∋ owns ∋ subset ⊂
    supset ⊃ subseteq ⊆ supseteq ⊇ nsubseteq ⊈ nsupseteq ⊉ subsetneq ⊊
    supsetneq ⊋ Subset ⋐ Supset ⋑ sqsubset ⊏ sqsupset ⊐ sqsubseteq ⊑
    sqsupseteq ⊒ ll ≪ gg ≫ lll ⋘ ggg ⋙ leqslant ⩽ geqslant ⩾ leqq ≦ geqq ≧
    lneq ⪇ gneq ⪈ nleq ≰ ngeq ≱ nless ≮ ngtr ≯ lesssim ≲ gtrsim ≳
    lessgtr ≶ gtrless ≷ lessapprox ⪅ gtrapprox ⪆ prec ≺ succ ≻ preceq ⪯
    succeq ⪰ preccurlyeq ≼ succcurlyeq ≽ precsim ≾ succsim ≿ nprec ⊀ nsucc ⊁
    smile ⌣ frown ⌢ therefore ∴ because ∵ backsim ∽ thicksim ∼ thickapprox ≈
    trianglelefteq ⊴ trianglerighteq ⊵ vartriangleleft ⊲ vartriangleright ⊳
    ntriangleleft ⋪ ntriangleright ⋫ between ≬ pitchfork ⋔ multimap ⊸
    to → rightarrow → gets ← leftarrow ← leftrightarrow ↔ Rightarrow ⇒
    implies ⟹ Leftarrow ⇐ impliedby ⟸ Leftrightarrow ⇔ iff ⟺ longrightarrow ⟶
    longleftarrow ⟵ longleftrightarrow ⟷ Longrightarrow ⟹ Longleftarrow ⟸
    Longleftrightarrow ⟺ mapsto ↦ longmapsto ⟼ hookrightarrow ↪
    hookleftarrow ↩ rightharpoonup ⇀ rightharpoondown ⇁ leftharpoonup ↼
    leftharpoondown ↽ rightleftharpoons ⇌ leftrightharpoons ⇋ leadsto ⇝
    rightsquigarrow ⇝ uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑
    Downarrow ⇓ Updownarrow ⇕ nearrow ↗ searrow ↘ swarrow ↙ nwarrow ↖
    rightleftarrows ⇄ leftrightarrows ⇆ rightrightarrows ⇉ leftleftarrows ⇇
    twoheadrightarrow ↠ twoheadleftarrow ↞ rightarrowtail ↣ leftarrowtail ↢
    nrightarrow ↛ nleftarrow ↚ nRightarrow ⇏ nLeftarrow ⇍ nleftrightarrow ↮
    nLeftrightarrow ⇎ circlearrowleft ↺ circlearrowright ↻ curvearrowleft ↶
    curvearrowright ↷ dashrightarrow ⇢ dashleftarrow ⇠ Lsh ↰ Rsh ↱
    upharpoonright ↾ downharpoonright ⇂ restriction ↾ upuparrows ⇈
    downdownarrows ⇊ Lleftarrow ⇚ Rrightarrow ⇛ looparrowright ↬`);
  const LARGE = pairs(`sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigvee ⋁
    bigwedge ⋀ bigoplus ⨁ bigotimes ⨂ bigodot ⨀ bigsqcup ⨆ biguplus ⨄`);
  const INTEGRALS = pairs(`int ∫ iint ∬ iiint ∭ iiiint ⨌ oint ∮ oiint ∯
    oiiint ∰ smallint ∫`);
  const NAMED = new Set(words(`sin cos tan cot sec csc sinh cosh tanh coth sech
    csch arcsin arccos arctan arccot arctg ctg tg sh ch th log ln lg exp deg
    dim hom ker arg sgn tr Tr rank erf`));
  const LIMITS = pairs(`lim lim max max min min sup sup inf inf det det gcd gcd
    lcm lcm Pr Pr limsup lim_sup liminf lim_inf injlim inj_lim
    projlim proj_lim argmax arg_max argmin arg_min`);
  const OPEN = pairs(`{ { lbrace { langle ⟨ lfloor ⌊ lceil ⌈ lvert | lVert ‖
    lgroup ⟮ lmoustache ⎰ lbrack [ ulcorner ⌜ llcorner ⌞ llbracket ⟦ lparen (`);
  const CLOSE = pairs(`} } rbrace } rangle ⟩ rfloor ⌋ rceil ⌉ rvert | rVert ‖
    rgroup ⟯ rmoustache ⎱ rbrack ] urcorner ⌝ lrcorner ⌟ rrbracket ⟧ rparen )`);
  const EITHER = pairs(`| ‖ Vert ‖ vert | backslash \\ uparrow ↑ downarrow ↓
    updownarrow ↕ Uparrow ⇑ Downarrow ⇓ Updownarrow ⇕`);
  const DELIMITERS = new Map([...OPEN, ...CLOSE, ...EITHER]);
  const ACCENTS = pairs(`hat ^ widehat ^ check ˇ widecheck ˇ tilde ~
    widetilde ~ acute ´ grave \` dot ˙ ddot ¨ dddot ⃛ breve ˘ bar ¯ vec →
    mathring ˚ overrightarrow → overleftarrow ← overleftrightarrow ↔
    overbrace ⏞ overparen ⏜ overbracket ⎴ overgroup ⏠ Overrightarrow ⇒`);
  const BELOW = pairs(`underbrace ⏟ underparen ⏝ underbracket ⎵
    underrightarrow → underleftarrow ← underleftrightarrow ↔ undergroup ⏡
    utilde ~`);
  const STRETCHED = /^(wide|over|under|Over)/;
  const ARROWS = pairs(`xrightarrow → xleftarrow ← xleftrightarrow ↔
    xRightarrow ⇒ xLeftarrow ⇐ xLeftrightarrow ⇔ xmapsto ↦ xlongequal =
    xhookrightarrow ↪ xhookleftarrow ↩ xrightleftharpoons ⇌
    xrightharpoonup ⇀ xleftharpoonup ↼ xtwoheadrightarrow ↠`);
  const SPACES = new Map([[",", 3], [":", 4], [">", 4], [";", 5], ["!", -3],
    [" ", 6], ["\n", 6], ["quad", 18], ["qquad", 36], ["enspace", 9],
    ["enskip", 9], ["thinspace", 3], ["medspace", 4], ["thickspace", 5],
    ["space", 6], ["nobreakspace", 6], ["negthinspace", -3],
    ["negmedspace", -4], ["negthickspace", -5]]); /* in 18ths of 1em */
  const SIZES = new Map([["tiny", .5], ["scriptsize", .7],
    ["footnotesize", .8], ["small", .9], ["normalsize", 1], ["large", 1.2],
    ["Large", 1.44], ["LARGE", 1.73], ["huge", 2.07], ["Huge", 2.49]]);
  const BIG = {big: 1.2, Big: 1.8, bigg: 2.4, Bigg: 3};
  const STYLES = {displaystyle: [true, 0], textstyle: [false, 0],
    scriptstyle: [false, 1], scriptscriptstyle: [false, 2]};
  /* Alphabets: where A, a and 0 stand in Unicode, or CSS. What stands elsewhere
   * is in ELSEWHERE. */
  const ALPHABETS = {
    bb: [0x1d538, 0x1d552, 0x1d7d8], cal: [0x1d49c, 0x1d4b6],
    frak: [0x1d504, 0x1d51e], rm: {}, it: {fontStyle: "italic"},
    bf: [0x1d400, 0x1d41a, 0x1d7ce], bi: [0x1d468, 0x1d482, 0x1d7ce],
    sf: {fontFamily: "sans-serif"}, tt: {fontFamily: "var(--mono)"}};
  const BOLD = {fontWeight: "bold"};
  const ELSEWHERE = {bf: new Map(), bi: new Map(),
    bb: pairs("C ℂ H ℍ N ℕ P ℙ Q ℚ R ℝ Z ℤ"),
    cal: pairs("B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ"),
    frak: pairs("C ℭ H ℌ I ℑ R ℜ Z ℨ")};
  const FONTS = pairs(`mathbb bb Bbb bb mathds bb mathcal cal mathscr cal
    mathfrak frak mathrm rm mathup rm mathbf bf mathit it mathsf sf mathtt tt
    boldsymbol bi bm bi mathbfit bi pmb bi mathnormal none symbf bf symbb bb
    symcal cal symrm rm`);
  const OLD_FONTS = pairs("rm rm bf bf it it cal cal sf sf tt tt");
  const TEXTS = new Map([["text", ""], ["textrm", ""], ["mbox", ""],
    ["hbox", ""], ["textnormal", ""], ["textup", ""], ["textmd", ""],
    ["textbf", "bf"], ["textit", "it"], ["emph", "it"], ["textsl", "it"],
    ["texttt", "tt"], ["textsf", "sf"], ["textsc", ""]]);
  const IGNORED = new Set(words(`nonumber notag strut mathstrut allowbreak
    nobreak relax null displaylimits hfill centering noindent`));
  const SAME = new Set(words(`mathord mathbin mathrel mathopen mathclose
    mathpunct mathinner ensuremath smash mathllap mathrlap mathclap vcenter`));
  /* Environments: delimiters, how columns are aligned, style. */
  const TABLES = {matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"],
    Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"],
    smallmatrix: ["", "", "c", "small"], cases: ["{", "", "l"],
    dcases: ["{", "", "l", "display"], rcases: ["", "}", "l"],
    array: ["", "", "given"], tabular: ["", "", "given"],
    subarray: ["", "", "given", "small"]};
  for (const name of words(`aligned align alignat alignedat split eqnarray
      flalign`)) TABLES[name] = ["", "", "rl", "display"];
  for (const name of words(`gathered gather equation multline displaymath
      math`)) TABLES[name] = ["", "", "c", "display"];

  const MOST_DEEP = 60;

  function el(tag, props = {}, ...inside) {
    const e = document.createElementNS("http://www.w3.org/1998/Math/MathML",
      tag);
    for (const [k, v] of Object.entries(props)) e.setAttribute(k, v);
    e.append(...inside);
    return e;
  }
  const row = all => all.length === 1 ? all[0] : el("mrow", {}, ...all);
  const space = em => el("mspace", {width: em.toFixed(4) + "em"});
  const styled = (e, css) => {
    for (const [k, v] of Object.entries(css)) e.style[k] = v;
    return e;
  };
  /* What an element is to its neighbours: "name" wants a space before letters
   * and numbers; `over`: scripts go above and below. */
  const mark = (e, what) => Object.assign(e, what);

  class Reader {
    constructor(tex) {
      this.all = tex.replace(/(?<!\\)%[^\n]*/g, "")
        .match(/\\(?:[a-zA-Z]+|[^])|\s+|[^]/gu) || [];
      this.at = 0;
      this.deep = 0;
      this.font = "none";
    }
    skip() { while (/^\s/.test(this.all[this.at] || "")) this.at++; }
    peek() { this.skip(); return this.all[this.at]; }
    take() { this.skip(); return this.all[this.at++]; }
    took(t) {
      if (this.peek() !== t) return false;
      this.at++;
      return true;
    }
    need(t) { if (!this.took(t)) throw Error("no " + t); }
    /* The text in braces or brackets, as it is; else one sign. */
    raw(open = "{", close = "}") {
      if (!this.took(open)) return open === "{" ? this.take() || "" : null;
      let text = "", deep = 1;
      for (; this.at < this.all.length; text += this.all[this.at++]) {
        if (this.all[this.at] === "{") deep++;
        else if (this.all[this.at] === "}") deep--;
        if (this.all[this.at] === close && deep === (close === "}" ? 0 : 1)) {
          this.at++;
          return text;
        }
      }
      throw Error("no " + close);
    }
    /* An argument: a group, or one sign. */
    arg() {
      if (this.took("{")) {
        const font = this.font, e = row(this.until("}"));
        this.font = font;
        this.need("}");
        return e;
      }
      if (/^\d/.test(this.peek() || "")) return el("mn", {}, this.take());
      return this.atom() || el("mrow");
    }
    optional() {
      if (!this.took("[")) return null;
      const all = this.until("]");
      this.need("]");
      return row(all);
    }
    within(font, read) {
      const was = this.font;
      this.font = font;
      const e = read();
      this.font = was;
      return e;
    }
    /* Signs up to one of those that end a part; these are left. */
    until(...ends) {
      const all = [];
      for (let t; (t = this.peek()) !== undefined && !ends.includes(t);) {
        if (t === "}" || t === "&" || t === "\\\\" || t === "\\right" ||
          t === "\\end" || t === "\\cr" || t === "\\middle") break;
        const name = t[0] === "\\" ? t.slice(1) : "";
        if (this.rest(name, all, ends)) continue;
        const e = this.scripted();
        if (e) all.push(e);
      }
      return spaced(all);
    }
    /* Commands for all that follows in a group, and \over. */
    rest(name, all, ends) {
      const take = () => { this.at++; return true; };
      const more = (tag, props, css) => {
        all.push(styled(el(tag, props, ...this.until(...ends)), css || {}));
        return true;
      };
      if (name === "over" || name === "choose" || name === "atop") {
        take();
        const above = row(spaced(all.splice(0))), below =
          row(this.until(...ends));
        const f = el("mfrac", name === "over" ? {} : {linethickness: 0}, above,
          below);
        all.push(name === "choose" ? fenced("(", ")", [f]) : f);
        return true;
      }
      if (STYLES[name] && take())
        return more("mstyle", {displaystyle: STYLES[name][0],
          scriptlevel: STYLES[name][1]});
      if (SIZES.has(name) && take())
        return more("mstyle", {}, {fontSize: SIZES.get(name) + "em"});
      if (OLD_FONTS.has(name) && take()) {
        this.font = OLD_FONTS.get(name);
        return true;
      }
      if (name === "color" && take()) {
        const colour = this.raw();
        if (this.peek() === "{") all.push(inColour(colour, this.arg()));
        else all.push(inColour(colour, row(this.until(...ends))));
        return true;
      }
      return false;
    }
    scripted() {
      let base = null, sub = null, sup = null, primes = "";
      const t = this.peek();
      if (t !== "_" && t !== "^" && t !== "'") {
        base = this.atom();
        if (!base) return null;
      }
      for (;;) {
        if (this.took("\\limits")) {
          const o = base && (base.core || base);
          if (o) o.setAttribute("movablelimits", "false");
          if (base) base.over = true;
        } else if (this.took("\\nolimits")) {
          if (base) base.over = false;
        } else if (this.took("'")) {
          primes += "′";
        } else if (!sub && this.took("_")) {
          sub = this.arg();
        } else if (!sup && this.took("^")) {
          sup = this.took("\\prime") ? el("mo", {}, "′") : this.arg();
        } else {
          break;
        }
      }
      if (primes) {
        const p = el("mo", {}, {2: "″", 3: "‴"}[primes.length] || primes);
        sup = sup ? row([p, sup]) : p;
      }
      return attach(base || el("mrow"), sub, sup);
    }
    atom() {
      if (++this.deep > MOST_DEEP) throw Error("too deep");
      const e = this.sign();
      this.deep--;
      return e;
    }
    sign() {
      const t = this.take();
      if (t === undefined) throw Error("too short");
      if (t === "{") {
        this.at--;
        const e = this.arg();
        if (e.localName === "mo" && !e.over) { /* {,} in 1{,}000 */
          e.setAttribute("lspace", 0);
          e.setAttribute("rspace", 0);
        }
        return e;
      }
      if (t[0] === "\\" && t.length > 1) return this.command(t.slice(1));
      if (/\d/.test(t)) {
        let n = t;
        while (/^\d$/.test(this.all[this.at] || "") || (this.all[this.at] ===
          "." && /^\d$/.test(this.all[this.at + 1] || "")))
          n += this.all[this.at++];
        return letters("mn", n, this.font);
      }
      if (/[A-Za-z]/.test(t)) return letters("mi", t, this.font);
      if ("([".includes(t)) return fence(t, "open");
      if (")]".includes(t)) return fence(t, "close");
      if (t === "|") return fence(t, "bar");
      if (t === "-") return el("mo", {}, "−");
      if (t === "*") return el("mo", {}, "∗");
      if (t === "~") return space(.3333);
      if (t === "'") return el("mo", {}, "′");
      if (t === "/") return el("mo", {lspace: 0, rspace: 0}, t);
      if (t === "$" || t === "#" || t === "}") throw Error("stray " + t);
      if (/\p{L}/u.test(t)) return /[\u0370-\u03ff]/.test(t)
        ? letters("mi", t, this.font) : el("mtext", {}, t);
      return el("mo", {}, t);
    }
    command(name) {
      if (LETTERS.has(name)) return letters("mi", LETTERS.get(name), this.font);
      if (UPRIGHT.has(name)) return letters("mi", UPRIGHT.get(name),
        this.font === "none" ? "rm" : this.font);
      if (EITHER.has(name) && !OPERATORS.has(name))
        return fence(EITHER.get(name), "bar");
      if (OPERATORS.has(name)) return el("mo", {}, OPERATORS.get(name));
      if (LARGE.has(name)) return mark(el("mo", {movablelimits: "true",
        largeop: "true"}, LARGE.get(name)), {over: true});
      if (INTEGRALS.has(name)) return el("mo", {largeop: "true"},
        INTEGRALS.get(name));
      if (NAMED.has(name)) return mark(el("mi", {}, name), {name: true});
      if (LIMITS.has(name))
        return limitOf(LIMITS.get(name).replace("_", "\u00a0"));
      if (OPEN.has(name)) return fence(OPEN.get(name), "open");
      if (CLOSE.has(name)) return fence(CLOSE.get(name), "close");
      if (SPACES.has(name)) return space(SPACES.get(name) / 18);
      if (IGNORED.has(name)) return null;
      if (ACCENTS.has(name)) return this.accent(name);
      if (BELOW.has(name)) {
        const x = this.arg(), sign = BELOW.get(name);
        return mark(el("munder", {accentunder: "true"}, x, sized(el("mo",
          {stretchy: "true"}, sign), "--wide", wide(x, sign))), {over: true});
      }
      if (ARROWS.has(name)) return this.arrow(ARROWS.get(name));
      if (FONTS.has(name))
        return this.within(FONTS.get(name), () => this.arg());
      if (TEXTS.has(name)) return this.text(TEXTS.get(name));
      if (SAME.has(name)) return this.arg();
      const big = /^([bB]igg?)([lrm]?)$/.exec(name);
      if (big) return this.big(BIG[big[1]], big[2]);
      if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name](this);
      if ("%$#&_".includes(name)) return el("mi", {mathvariant: "normal"},
        name);
      if (!/^[A-Za-z]/.test(name)) throw Error("unknown " + name);
      return styled(el("mtext", {}, "\\" + name), {color: "var(--warn)"});
    }
    accent(name) {
      const long = STRETCHED.test(name), x = this.arg();
      const sign = ACCENTS.get(name), o = el("mo", {stretchy: long}, sign);
      const e = el("mover", {accent: "true"}, x, long ? sized(o, "--wide",
        wide(x, sign)) : o);
      return /^over(br|par|gr)/.test(name) ? mark(e, {over: true}) : e;
    }
    arrow(sign) {
      const below = this.optional(), above = this.arg();
      const pad = x => el("mrow", {}, space(.4), x, space(.4));
      const o = sized(el("mo", {stretchy: "true", minsize: "2em"}, sign),
        "--wide", Math.max(.7 * wide(above), below ? .7 * wide(below) : 0) + 1);
      return below ? el("munderover", {}, o, pad(below), pad(above))
        : el("mover", {}, o, pad(above));
    }
    delimiter() {
      const t = this.take() || "";
      if (t === ".") return "";
      if (t === "<") return "⟨";
      if (t === ">") return "⟩";
      if (t[0] === "\\" && DELIMITERS.has(t.slice(1)))
        return DELIMITERS.get(t.slice(1));
      if ("()[]|/".includes(t)) return t;
      throw Error("no delimiter: " + t);
    }
    big(em, side) {
      const d = this.delimiter();
      if (!d) return null;
      return mark(sized(el("mo", {stretchy: "true", symmetric: "true",
        minsize: em + "em", maxsize: em + "em", lspace: side === "m" ? ".2em"
          : 0, rspace: side === "m" ? ".2em" : 0}, d), "--tall", em),
      {side: "bar"});
    }
    fenced() {
      const all = [], open = this.delimiter();
      for (;;) {
        all.push(...this.until());
        if (this.took("\\middle"))
          all.push(stretched(this.delimiter(), "infix"));
        else break;
      }
      this.need("\\right");
      return fenced(open, this.delimiter(), all);
    }
    text(font) {
      const source = this.raw(), out = [];
      source.split(/(?<!\\)\$/).forEach((s, i) => {
        if (i % 2) return out.push(...new Reader(s).whole());
        s = s.replace(/\\(text\w*|emph|mathrm)(?=\{)/g, "")
          .replace(/\\([ _%$#&{}])/g, (_, c) => ({"{": "\u0001",
            "}": "\u0002"}[c] || c)).replace(/[{}]/g, "")
          .replace(/\\(?:ldots|dots)\b/g, "…").replace(/\\(quad|,|;)/g, " ")
          .replace(/~|\s+/g, "\u00a0").replaceAll("\u0001", "{")
          .replaceAll("\u0002", "}");
        if (s) out.push(styled(el("mtext", {}, s), font === "bf" ? BOLD
          : ALPHABETS[font] || {}));
      });
      return row(out);
    }
    table(name) {
      const plain = name.replace(/\*$/, ""), form = Object.hasOwn(TABLES, plain)
        && TABLES[plain];
      if (!form) throw Error("unknown environment " + name);
      let [open, close, columns = "c"] = form;
      if (/^alignedat|^alignat/.test(plain)) this.raw();
      else if (columns !== "given") this.raw("[", "]");
      if (columns === "given") {
        this.raw("[", "]");
        columns = this.raw();
      } else if (name.endsWith("matrix*")) {
        columns = this.raw("[", "]") || "c";
      }
      const e = tableOf(this.rows(), columns, form[3]);
      this.need("\\end");
      if (this.raw() !== name) throw Error("another end");
      return open || close ? fenced(open, close, [e]) : e;
    }
    rows() {
      const rows = [[]];
      let lines = 0;
      for (;;) {
        while (this.peek() === "\\hline" || this.peek() === "\\cline" ||
            this.peek() === "\\toprule" || this.peek() === "\\midrule" ||
            this.peek() === "\\bottomrule") {
          if (this.take() === "\\cline") this.raw();
          lines++;
        }
        rows.at(-1).line = rows.at(-1).line || lines > 0;
        lines = 0;
        rows.at(-1).push(this.until());
        if (this.took("&")) continue;
        if (!this.took("\\\\") && !this.took("\\cr")) break;
        this.took("*");
        if (/^\[\s*-?[\d.]+\s*\w+\s*\]/.test(this.all.slice(this.at,
          this.at + 12).join(""))) this.raw("[", "]");
        rows.push([]);
      }
      const last = rows.at(-1);
      if (rows.length > 1 && last.length === 1 && !last[0].length) {
        rows.pop();
        if (last.line) rows.at(-1).below = true;
      }
      return rows;
    }
    whole() {
      const rows = this.rows();
      if (this.peek() !== undefined) throw Error("left over");
      return rows.length === 1 && rows[0].length === 1 ? rows[0][0]
        : [tableOf(rows, rows.some(r => r.length > 1) ? "rl" : "c",
          "display")];
    }
  }

  function letters(tag, text, font) {
    const isBold = font === "bf" || font === "bi";
    const a = isBold && !/^[A-Za-z\d.]*$/.test(text) ? BOLD
      : ALPHABETS[font], upright = {mathvariant: "normal"};
    if (Array.isArray(a)) {
      return el(tag, tag === "mi" ? upright : {}, [...text].map(c => {
        const from = /[A-Z]/.test(c) ? [a[0], 65] : /[a-z]/.test(c)
          ? [a[1], 97] : /\d/.test(c) ? [a[2], 48] : [0];
        return ELSEWHERE[font].get(c) || (from[0]
          ? String.fromCodePoint(from[0] + c.charCodeAt() - from[1]) : c);
      }).join(""));
    }
    if (!a) return el(tag, {}, text);
    return styled(el(tag, font === "bi" || tag !== "mi" ? {} : upright, text),
      a);
  }
  const fence = (t, side) => mark(el("mo", {stretchy: "false", lspace: 0,
    rspace: 0}, t), {side});
  const stretched = (t, form) => el("mo", {stretchy: "true", symmetric: "true",
    fence: "true", form, ...form === "infix" ? {lspace: ".15em",
      rspace: ".15em"} : {lspace: 0, rspace: 0}}, t);
  function fenced(open, close, all) {
    const e = el("mrow", {}, ...open ? [stretched(open, "prefix")] : [], ...all,
      ...close ? [stretched(close, "postfix")] : []);
    for (const o of e.children)
      if (o.getAttribute("fence")) sized(o, "--tall", tall(e));
    return e;
  }
  /* About how many lines an element is high, and how many times as wide as an
   * arrow or a brace. The page scales these where no font can stretch them. */
  function tall(e) {
    const all = [...e.children].map(tall), most = Math.max(1, ...all);
    const more = {mover: .5, munder: .5, munderover: 1, msup: .3, msub: .3,
      msubsup: .5}[e.localName];
    return more ? all[0] + more : e.localName === "mfrac" ? all[0] + all[1]
      : e.localName === "mtable" ? 1.15 * all.reduce((a, b) => a + b, 0) : most;
  }
  const wide = (e, sign) => Math.max(1, (e.textContent.length + 1.5 *
    e.querySelectorAll("mo").length) * ("⏞⏟⏜⏝⎴⎵⏠⏡".includes(sign) ? 1 : .68));
  function sized(e, name, n) {
    e.style.setProperty(name, n.toFixed(1));
    return e;
  }
  const limitOf = text => mark(el("mo", {movablelimits: "true", lspace: 0,
    rspace: 0, form: "prefix"}, text), {over: true, name: true});
  function inColour(colour, e) {
    if (!/^#?[\w ]+$/.test(colour)) throw Error("no colour");
    return styled(el("mstyle", {}, e), {color: colour});
  }
  function attach(base, sub, sup) {
    const over = base.over, kind = (sub ? over ? "under" : "sub" : "") +
      (sup ? over ? "over" : "sup" : "");
    if (!kind) return base;
    return mark(el("m" + kind, {}, base, ...sub ? [sub] : [],
      ...sup ? [sup] : []), {name: base.name, side: base.side, core: base});
  }
  /* Sets names of functions off from what they are of. */
  function spaced(all) {
    const ordinary = e => e && !e.name && e.localName !== "mo" &&
      e.localName !== "mspace" && !e.side;
    const out = [];
    all.forEach((e, i) => {
      const before = all[i - 1];
      if ((e.name && before && (before.name || ordinary(before) ||
          before.side === "close")) || (before?.name && ordinary(e)))
        out.push(space(.1667));
      out.push(e);
    });
    return out;
  }
  function tableOf(rows, columns, style) {
    const kinds = columns.replace(/@\{[^}]*\}|[pmb]\{[^}]*\}/g, m =>
      m[0] === "@" ? "" : "l").match(/\|?[lcr]\|*/g) || ["c"];
    const paired = columns === "rl";
    const e = el("mtable", style === "display" ? {displaystyle: "true"} : {},
      ...rows.map(r => el("mtr", {}, ...r.map((cell, k) => {
        const kind = kinds[columns === "given" || columns.includes("|") ?
          Math.min(k, kinds.length - 1) : k % kinds.length];
        const d = el("mtd", {}, ...paired && k % 2 ? [el("mrow")] : [],
          ...cell);
        const side = /l/.test(kind) ? "left" : /r/.test(kind) ? "right" : "";
        const css = {};
        if (side) { /* by the attribute in Firefox, by CSS in the others */
          d.setAttribute("columnalign", side);
          css.textAlign = "-webkit-" + side;
        }
        if (kind[0] === "|") css.borderLeft = "1px solid";
        if (kind.endsWith("|")) css.borderRight = "1px solid";
        if (r.line) css.borderTop = "1px solid";
        if (r.below) css.borderBottom = "1px solid";
        if (paired) css[k % 2 ? "paddingLeft" : "paddingRight"] = "0";
        return styled(d, css);
      }))));
    return style === "small" ? styled(e, {fontSize: ".75em"}) : e;
  }
  const frac = (r, style) => {
    const f = el("mfrac", {}, r.arg(), r.arg());
    return style === undefined ? f : el("mstyle", {displaystyle: style,
      scriptlevel: 0}, f);
  };
  const binom = r => fenced("(", ")", [el("mfrac", {linethickness: 0}, r.arg(),
    r.arg())]);
  const lined = (css, side) => r => styled(el("mrow", {}, r.arg()),
    {[css]: "1px solid", [side]: ".12em"});
  const STRIKE = (...ways) => r => styled(el("mrow", {}, r.arg()), {background:
    ways.map(way => `linear-gradient(to ${way}, transparent ` +
      "calc(50% - .6px), currentColor calc(50% - .6px) calc(50% + .6px), " +
      "transparent calc(50% + .6px))").join()});
  const gap = r => {
    const m = /^\s*(-?[\d.]+)\s*(em|ex|mu|pt|px|cm|mm|in)?/.exec(r.raw());
    const unit = {em: 1, ex: .45, mu: 1 / 18, pt: .1, px: .075, cm: 2.85,
      mm: .285, in: 7.2};
    return m ? space(m[1] * (unit[m[2]] || 1)) : null;
  };
  const plainOf = s => s.replace(/(?<!\\)\s+/g, "")
    .replace(/\\[,;: ]|~/g, "\u00a0")
    .replace(/\\(?:mathrm|text|rm)(?![a-z])|[{}\\]/g, "");

  /* Chemical formulas: letters upright, numbers after them below. */
  function chemical(s) {
    const out = [];
    const parts = s.match(new RegExp("<=>>?|<->|->|<-|\\^\\{[^}]*\\}|" +
      "\\^[\\d+-]+|_\\{[^}]*\\}|_\\d+|\\s+|[A-Za-z]+|\\d+(?:\\.\\d+)?|[^]",
    "g")) || [];
    const arrow = {"<=>": "⇌", "<=>>": "⇌", "<->": "↔", "->": "→", "<-": "←"};
    let after = false; /* a letter or a bracket: a number goes below */
    const script = (sub, sup) => {
      const base = out.pop() || el("mrow");
      out.push(attach(base.localName === "msub" && sup
        ? base.firstChild : base, base.localName === "msub" && sup
        ? base.lastChild : sub, sup));
    };
    for (const p of parts) {
      if (/^\s/.test(p)) { after = false; continue; }
      if (arrow[p]) out.push(el("mo", {stretchy: "true", minsize: "1.6em"},
        arrow[p]));
      else if (p[0] === "^") script(null, el("mtext", {},
        p.slice(1).replace(/[{}]/g, "").replace("-", "−")));
      else if (p[0] === "_" || (after && /^\d/.test(p))) script(el("mn", {},
        p.replace(/[_{}]/g, "")), null);
      else if (after && /^[+-]$/.test(p) && s.endsWith(p)) script(null,
        el("mo", {}, p === "-" ? "−" : p));
      else if (/^[A-Za-z]/.test(p))
        out.push(...(p.match(/[A-Z][a-z]?|[a-z]+/g) || []).map(x =>
          el("mi", {mathvariant: "normal"}, x)));
      else if (/^\d/.test(p)) out.push(el("mn", {}, p));
      else out.push("()[]".includes(p) ? fence(p, "bar") : el("mo", {}, p));
      after = /[A-Za-z)\]]$/.test(p);
    }
    return row(out);
  }

  const COMMANDS = {
    frac: r => frac(r), dfrac: r => frac(r, true), tfrac: r => frac(r, false),
    cfrac: r => { r.raw("[", "]"); return frac(r, true); },
    nicefrac: r => row([r.arg(), el("mo", {}, "/"), r.arg()]),
    sfrac: r => row([r.arg(), el("mo", {}, "/"), r.arg()]),
    binom, dbinom: r => el("mstyle", {displaystyle: true}, binom(r)),
    tbinom: r => el("mstyle", {displaystyle: false}, binom(r)),
    sqrt: r => {
      const n = r.optional(), x = r.arg();
      return n ? el("mroot", {}, x, n) : el("msqrt", {}, x);
    },
    left: r => r.fenced(),
    begin: r => r.table(r.raw()),
    overline: lined("borderTop", "paddingTop"),
    underline: lined("borderBottom", "paddingBottom"),
    boxed: r => styled(el("mrow", {}, el("mstyle", {displaystyle: true},
      r.arg())), {border: "1px solid", padding: ".25em .4em"}),
    cancel: STRIKE("top left"), bcancel: STRIKE("top right"),
    xcancel: STRIKE("top left", "top right"),
    sout: r => styled(r.arg(), {textDecoration: "line-through"}),
    overset: r => { const x = r.arg(); return el("mover", {}, r.arg(), x); },
    underset: r => { const x = r.arg(); return el("munder", {}, r.arg(), x); },
    stackrel: r => { const x = r.arg(); return el("mover", {}, r.arg(), x); },
    substack: r => {
      r.need("{");
      const e = tableOf(r.rows(), "c");
      r.need("}");
      return e;
    },
    operatorname: r => r.took("*") ? limitOf(plainOf(r.raw()))
      : mark(el("mi", {mathvariant: "normal"}, plainOf(r.raw())),
        {name: true}),
    mathop: r => mark(r.arg(), {over: true}),
    not: r => {
      const e = r.atom();
      if (e) e.textContent += "\u0338";
      return e;
    },
    pmod: r => row([space(.5), fence("(", "open"), el("mi", {}, "mod"),
      space(.25), r.arg(), fence(")", "close")]),
    bmod: () => row([space(.22), el("mi", {}, "mod"), space(.22)]),
    mod: r => row([space(.5), el("mi", {}, "mod"), space(.22), r.arg()]),
    multicolumn: r => { r.raw(); r.raw(); return r.arg(); },
    fbox: r => styled(r.text(""), {border: "1px solid", padding: ".25em .4em"}),
    colorbox: r => { r.raw(); return r.text(""); },
    intertext: r => r.text(""),
    genfrac: r => {
      const open = plainOf(r.raw()), close = plainOf(r.raw()), line = r.raw();
      r.raw();
      return fenced(open, close, [el("mfrac", /^0/.test(line)
        ? {linethickness: 0} : {}, r.arg(), r.arg())]);
    },
    vspace: r => { r.raw(); return null; },
    varlimsup: () => limitOf("lim\u00a0sup"),
    varliminf: () => limitOf("lim\u00a0inf"),
    textcolor: r => inColour(r.raw(), r.arg()),
    phantom: r => el("mphantom", {}, r.arg()),
    hphantom: r => el("mphantom", {}, r.arg()),
    vphantom: r => el("mpadded", {width: 0}, el("mphantom", {}, r.arg())),
    hspace: r => { r.took("*"); return gap(r); },
    mspace: gap, hskip: gap, kern: gap, mkern: gap,
    tag: r => {
      const plain = r.took("*"), s = r.raw().replace(/\$/g, "");
      return row([space(2), el("mtext", {}, plain ? s : `(${s})`)]);
    },
    label: r => { r.raw(); return null; },
    ref: r => el("mtext", {}, r.raw()), eqref: r => el("mtext", {},
      `(${r.raw()})`),
    href: r => { r.raw(); return r.arg(); },
    ce: r => chemical(r.raw()), pu: r => chemical(r.raw()),
    textsuperscript: r => el("msup", {}, el("mrow"), r.arg()),
    textsubscript: r => el("msub", {}, el("mrow"), r.arg()),
    bra: r => row([fence("⟨", "open"), r.arg(), fence("|", "close")]),
    ket: r => row([fence("|", "open"), r.arg(), fence("⟩", "close")]),
    braket: r => row([fence("⟨", "open"), r.arg(), fence("⟩", "close")]),
    R: () => letters("mi", "R", "bb"), N: () => letters("mi", "N", "bb"),
    Z: () => letters("mi", "Z", "bb"), Q: () => letters("mi", "Q", "bb"),
    C: () => letters("mi", "C", "bb"),
    abs: r => fenced("|", "|", [r.arg()]),
    norm: r => fenced("‖", "‖", [r.arg()]),
  };

  return (tex, display) => {
    try {
      const e = el("math", display ? {display: "block"} : {},
        ...new Reader(tex).whole());
      e.setAttribute("alttext", tex.trim());
      return e;
    } catch (e) {
      return null;
    }
  };
})();
