#!/usr/bin/env python3
"""train_tokenizers.py DIR [SEED]: small tokenizers and the ids that the packages
`tokenizers` and `sentencepiece` give, for tests/text/test_tokenizer_trained.c.

Writes into DIR
  texts.inp          texts, each ended by a separator, as in the references
  bpe.gguf           merges without words, so that every cut shows in the ids
  bpe-NAME.out       ids with the pre-tokenizer NAME, a line a text
  wordpiece.gguf/.out, wordpiece-cased.gguf/.out
  unigram.gguf/.out  by `tokenizers`, which maps characters only from cluster to
                     cluster, so without a map
  unigram-bytes.gguf/.out  by `sentencepiece`, with byte tokens and a map
  unigram-plain.gguf/.out  by `sentencepiece`, which keeps all blanks
Needs the packages gguf, numpy, tokenizers, sentencepiece and protobuf; the exit
status is 77 if one is missing.
"""
import json
import os
import random
import re
import sys
import unicodedata

try:
    import gguf
    import numpy
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    from tokenizers import (Regex, Tokenizer, models, normalizers,
                            pre_tokenizers, trainers)
except ImportError as e:
    print(e)
    sys.exit(77)

SEPARATOR = '\n__ggml_vocab_test__\n'
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
LOW = '\u2581'

# ---- the expressions that models publish in their tokenizer.json -----------

LETTERS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASES = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|[^\r\n\p{L}\p{N}]?"
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|%s"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
      r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
      r"|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&"
        r"[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# name: (a piece that is a token is taken whole, expressions)
RULES = {
    'gpt-2': (False, [GPT2]),
    'starcoder': (False, [r"\p{N}", GPT2]),
    'llama-bpe': (True, [LETTERS % r"\p{N}{1,3}"]),
    'dbrx': (False, [LETTERS % r"\p{N}{1,3}"]),
    'qwen2': (False, [LETTERS % r"\p{N}"]),
    'qwen35': (False, [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]),
    'gpt-4o': (False, [CASES % (SHORT, SHORT, r"\p{N}{1,3}")]),
    'tekken': (True, [CASES % ("", "", r"\p{N}")]),
    'kimi-k2': (False, [KIMI]),
    'falcon': (False, [r"[\p{P}\$\+<=>\^\~\|`]+", GPT2, r"[0-9][0-9][0-9]"]),
    'deepseek-coder': (False, [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK,
                               r"\p{N}"]),
    'deepseek-v3': (False, [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", V3]),
    'spark2_5': (False, [
        r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]"
        r"|\s+(?!\S)|\s+", r"\p{N}"]),
    'ufakzeka': (False, [
        r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"]),
    'bailingmoe': (False, [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"]),
    'seed-coder': (False, [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}"
        r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"]),
    'exaone-moe': (False, [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
        r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"]),
    'tiny_aya': (False, [r"\d{1,3}(?=(?:\d{3})*\b)",
                         CASES % (SHORT, SHORT, r"\p{N}{1,3}")]),
    'superbpe': (False, [r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    'afmoe': (False, [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        r"[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟"
        r"เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+", V3]),
    'minicpm5': (True, [r"\p{N}{1,3}", LETTERS % r"\p{N}+"]),
    'jais-2': (False, [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)"
        r"|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)"
        r"|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"]),
    'bloom': (False, [r" ?[^(\s|[.,!?…。，、।۔،])]+"]),
}

# ---- texts ------------------------------------------------------------------

OLD = unicodedata.ucd_3_2_0


def known(c):
    """Returns true for characters that all versions of Unicode treat alike."""
    return (OLD.category(c) == unicodedata.category(c) and
            OLD.category(c) not in ('Cn', 'Cs', 'Co'))


CLASSES = [
    'abcdefghijklmnopqrstuvwxyz', 'abcdeABCDE', '0123456789', '0123456789',
    '   \n\t\r', '     ', '.,;:!?\'"()-_/\\#$%&*+<=>@[]^`{|}~',
    ["'s", "'T", "'re", "'LL", "'d", "'ve", ' a', '\n\n', '  ', '...', '12345'],
    [chr(c) for c in range(0xa0, 0x250) if known(chr(c)) and c != 0xad],
    [chr(c) for c in range(0x300, 0x34f)],
    [chr(c) for c in range(0x370, 0x530) if known(chr(c))],
    [chr(c) for c in range(0x5d0, 0x700) if known(chr(c))],
    [chr(c) for c in range(0x900, 0x1200) if known(chr(c))],
    [chr(c) for c in range(0x1e00, 0x2000) if known(chr(c))],
    [chr(c) for c in range(0x2010, 0x2c00) if known(chr(c))],
    [chr(c) for c in range(0x3000, 0x3130) if known(chr(c))],
    [chr(c) for c in range(0x4e00, 0x4f00)],
    [chr(c) for c in range(0xac00, 0xad00)],
    [chr(c) for c in range(0xf900, 0xfa00)],
    [chr(c) for c in range(0xff01, 0xff5f)],
    [chr(c) for c in range(0x1d400, 0x1d4ff) if known(chr(c))],
    list('😀🚀🦙𐐀𐐨\u200d\ufe0f\u200b\u3000\u2028'),
]


# One or two characters of each class that an expression may distinguish, so
# that there are merges for most pairs and a wrong cut shows.
CUTS = list('aabBsé\u0301\u0903\u02b0\u01c5א一二あ가012²Ⅳ٣   \n\r\t\u3000'
            "./'_(!，$+^`~😀\u200b\x01") + ["'s", "'Ll", '...', '!?']


def make_cuts(rng, n):
    return [''.join(rng.choice(CUTS) for _ in range(2 + rng.randrange(24)))
            for _ in range(n)]


def make_texts(rng, n):
    texts = ['', ' ', '  ', 'Hello world', ' Hello  World\n',
             "I've we'LL 1234567 12 12345abc 123_ 1234, x1234567.\n\n  y   "]
    while len(texts) < n:
        classes = rng.sample(CLASSES, 1 + rng.randrange(4))
        texts.append(''.join(rng.choice(rng.choice(classes))
                             for _ in range(1 + rng.randrange(24))))
    return [t for t in texts if SEPARATOR not in t]


# ---- files -----------------------------------------------------------------

def write_gguf(path, model, tokens, types, scores=None, merges=None, keys=()):
    w = gguf.GGUFWriter(path, 'llama')
    w.add_tokenizer_model(model)
    w.add_token_list([t.encode() for t in tokens])
    w.add_token_types(types)
    if scores is not None:
        w.add_token_scores(scores)
    if merges is not None:
        w.add_token_merges(merges)
    for key, value in keys:
        key = 'tokenizer.ggml.' + key
        if isinstance(value, bool):
            w.add_bool(key, value)
        elif isinstance(value, int):
            w.add_uint32(key, value)
        elif isinstance(value, bytes):
            w.add_array(key, value)
        else:
            w.add_string(key, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_ids(path, ids):
    with open(path, 'w') as f:
        for row in ids:
            f.write('?' if row is None else ''.join(f' {i}' for i in row))
            f.write('\n')


def bpe(folder, corpus, texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False,
                                               use_regex=False)
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=1800, min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    vocab = t.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    state = json.loads(t.to_str())['model']
    merges = [m if isinstance(m, str) else ' '.join(m) for m in state['merges']]
    write_gguf(f'{folder}/bpe.gguf', 'gpt2', tokens, [NORMAL] * len(tokens),
               merges=merges, keys=[('pre', 'gpt-2')])
    pairs = [tuple(m.split(' ')) for m in merges]
    for name, (whole, rules) in RULES.items():
        t = Tokenizer(models.BPE(vocab=vocab, merges=pairs,
                                 ignore_merges=whole))
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r), 'isolated') for r in rules] +
            [pre_tokenizers.ByteLevel(add_prefix_space=False,
                                      use_regex=False)])
        write_ids(f'{folder}/bpe-{name}.out',
                  [t.encode(s, add_special_tokens=False).ids for s in texts])


def wordpiece(folder, corpus, texts, cased):
    special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    t = Tokenizer(models.WordPiece(unk_token='[UNK]',
                                   max_input_chars_per_word=1 << 20))
    t.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=600, min_frequency=1, limit_alphabet=420,
        special_tokens=special, show_progress=False))
    vocab = t.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    types = [CONTROL if k in special else NORMAL for k in tokens]
    spelled = [k if k in special else k[2:] if k.startswith('##') else LOW + k
               for k in tokens]
    name = f'{folder}/wordpiece' + ('-cased' if cased else '')
    write_gguf(name + '.gguf', 'bert', spelled, types, keys=[
        ('unknown_token_id', 1), ('cls_token_id', 2),
        ('seperator_token_id', 3)] +
        ([('normalizer.lowercase', False)] if cased else []))
    # The package splits special tokens off even if it is told not to add any;
    # texts have none.
    write_ids(name + '.out',
              [t.encode(s, add_special_tokens=False).ids for s in texts])


def char_map(folder):
    """A small map of characters, as SentencePiece compiles it."""
    rules = {c: ' ' for c in '\t\n\r\u3000\u2028'}
    rules |= {c: unicodedata.normalize('NFKC', c)
              for c in map(chr, range(0xff01, 0xff5f))}
    rules |= {chr(c): unicodedata.normalize('NFKC', chr(c))
              for c in range(0xa1, 0x200)
              if known(chr(c)) and unicodedata.normalize('NFKC', chr(c)) != chr(c)}
    rules |= {'e\u0301': 'é', 'ab\u0301c': 'x', '\u200b': ''}
    with open(f'{folder}/rules.tsv', 'w') as f:
        for a, b in sorted(rules.items()):
            f.write(' '.join(f'{ord(c):X}' for c in a) + '\t' +
                    ' '.join(f'{ord(c):X}' for c in b) + '\n')


def sentences(folder, corpus, texts, name, **options):
    with open(f'{folder}/corpus', 'w') as f:
        f.writelines(' '.join(s.split()) + '\n' for s in corpus)
    sentencepiece.SentencePieceTrainer.train(
        input=f'{folder}/corpus', model_prefix=f'{folder}/m', vocab_size=800,
        model_type='unigram', character_coverage=0.99, hard_vocab_limit=False,
        normalization_rule_tsv=f'{folder}/rules.tsv', minloglevel=2, **options)
    sp = sentencepiece.SentencePieceProcessor(model_file=f'{folder}/m.model')
    m = pb.ModelProto()
    with open(f'{folder}/m.model', 'rb') as f:
        m.ParseFromString(f.read())
    n = sp.get_piece_size()
    tokens = [sp.id_to_piece(i) for i in range(n)]
    scores = [sp.get_score(i) for i in range(n)]
    types = [UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else
             BYTE if sp.is_byte(i) else UNUSED if sp.is_unused(i) else
             USER if m.pieces[i].type == 4 else NORMAL for i in range(n)]
    spec = m.normalizer_spec
    write_gguf(f'{folder}/{name}.gguf', 't5', tokens, types, scores, keys=[
        ('add_space_prefix', spec.add_dummy_prefix),
        ('remove_extra_whitespaces', spec.remove_extra_whitespaces),
        ('unknown_token_id', sp.unk_id()), ('eos_token_id', sp.eos_id()),
        ('precompiled_charsmap', spec.precompiled_charsmap)])
    # For three equal characters the first two or the last two may be a token.
    # Rounding decides, because the package adds up floats.
    write_ids(f'{folder}/{name}.out',
              [None if re.search(r'(.)\1\1', sp.normalize(s)) else sp.encode(s)
               for s in texts])
    for f in ('corpus', 'm.model', 'm.vocab'):
        os.remove(f'{folder}/{f}')


def unigram(folder, corpus, texts):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Replace(Regex(r'\A +| +\z'), ''),
        normalizers.Replace(Regex(' {2,}'), ' ')])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='always')
    t.train_from_iterator(corpus, trainers.UnigramTrainer(
        vocab_size=700, unk_token='<unk>', special_tokens=['<unk>', '</s>'],
        show_progress=False))
    state = json.loads(t.to_str())
    pieces = [(p, float(numpy.float32(s))) for p, s in state['model']['vocab']]
    state['model']['vocab'] = pieces
    t = Tokenizer.from_str(json.dumps(state))
    tokens = [p for p, _ in pieces]
    write_gguf(f'{folder}/unigram.gguf', 't5', tokens,
               [UNKNOWN, CONTROL] + [NORMAL] * (len(tokens) - 2),
               [s for _, s in pieces], keys=[
                   ('add_space_prefix', True),
                   ('remove_extra_whitespaces', True),
                   ('unknown_token_id', 0), ('eos_token_id', 1)])
    write_ids(f'{folder}/unigram.out',
              [t.encode(s, add_special_tokens=False).ids for s in texts])


def main():
    folder = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(seed)
    corpus = make_texts(rng, 1500)
    cuts = make_cuts(rng, 4000)
    texts = make_texts(rng, 70) + make_cuts(rng, 70)
    with open(f'{folder}/texts.inp', 'w', newline='') as f:
        f.writelines(t + SEPARATOR for t in texts)
    bpe(folder, cuts, texts)
    wordpiece(folder, corpus, texts, False)
    wordpiece(folder, corpus, texts, True)
    char_map(folder)
    # without most characters, so that many are unknown
    corpus = [t for t in corpus if max(t, default='a') < '\u0180'] + cuts
    sentences(folder, corpus, texts, 'unigram-bytes', byte_fallback=True,
              user_defined_symbols=['ab c', '<x>'])
    sentences(folder, corpus, texts, 'unigram-plain',
              remove_extra_whitespaces=False)
    unigram(folder, corpus, texts)
    os.remove(f'{folder}/rules.tsv')


main()
