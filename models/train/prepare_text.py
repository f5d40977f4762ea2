#!/usr/bin/env python3
"""Makes the training and held-out texts.

  prepare_text.py books RAW OUT   from the e-texts of books.tsv, RAW/NUMBER.txt
  prepare_text.py text FILE OUT   from one plain text, its end held out

Both write OUT/train.jsonl and OUT/heldout.jsonl (see tales.py) and
OUT/heldout.txt, the held-out text alone. Downloads nothing.

An e-text marks titles, notes and verse only by look: capitals, empty lines,
short lines. The rules below were found by reading what came out of these
books; they will not fit others unseen.
"""
import argparse
import csv
import re
import unicodedata
from pathlib import Path

import tales

SMALL_WORDS = set("a an and at by for from his in of on or the to who "
                  "with".split())
ASCII = str.maketrans({
    "\u2018": "'", "\u2019": "'", "`": "'", "\u00b4": "'", "\u201c": '"',
    "\u201d": '"', "\u2013": "-", "\u2014": "--", "\u2026": "...",
    "\u00a0": " ", "\u00c6": "Ae", "\u00e6": "ae", "\u0152": "Oe",
    "\u0153": "oe", "\u00d8": "O", "\u00f8": "o", "\u00df": "ss",
    "\u0142": "l", "\u00a3": ""})


def any_of(*patterns, flags=0):
    return re.compile("|".join(patterns), flags)


PICTURE_OR_NOTE = re.compile(
    r"\[(?:Illustration|Picture|Note|Footnote|Sidenote|Transcriber)[^\]]*\]",
    re.I)

# Sections under these titles are not tales.
FRONT_OR_BACK_MATTER = any_of(
    r"^(?:PREFACE|(?:COLOU?RED )?PLATES|AUTHOR|INTRODUCT|CONTENTS|DEDICAT",
    r"TO THE FRIEND|TO .{0,40}READER|NOTICE|NOTES?\b|FOOTNOTE|LIST OF",
    r"ILLUSTRATION|GLOSSARY|APPENDIX|INDEX|TRANSCRIBER|ADVERTISE|BY THE SAME",
    r"ERRATA|END OF|THE END|BIBLIOGRAPH|SOURCES?$|THE FAIRY BOOK SERIES",
    r"JOSEPH JACOBS|NORSE POPULAR|AESOP'S FABLES|L?\.? ?FRANK BAUM",
    r"MY DEAR LITTLE|INJUN BABIES|PROSECUTED$|OYEZ|MAN OR WOMAN|BOY OR GIRL",
    r"STEPS? |(?:YOU KNOW )?HOW TO GET INTO)", flags=re.I)

# The book ends at such a heading, once there are tales before it.
BACK_MATTER = re.compile(
    r"^(?:NOTES AND REFERENCES|NOTES? TO|NOTES?$|APPENDIX|GLOSSARY"
    r"|TRANSCRIBER'?S? NOTES?|FOOTNOTES|THE END OF)", re.I)

# A piece that opens with such words is an editor's, or a list of contents.
NOT_A_TALE = any_of(
    r"Edited by|Illustrated by|Translator|editor|first edition|1\. The ",
    r"my books|my readers|this book|this volume|preceding observations",
    r"The Council with the Munchkins|sevot yhtils|Knock at the Knocker",
    r"Land of Oz\nOzma|All true, or just|Frog and the Ox|old, old$",
    r"Do tell us a fairy tale|Red Wagon drew up\Z")

NUMBERING = re.compile(
    r"^(?:CHAPTER|CHAP\.?|BOOK|PART|STORY|SECTION|THE .{3,12} CHAPTER)?\s*"
    r"(?:[IVXLC]+|\d+)?\s*[.:\-]*\s*", re.I)
NUMBERED = re.compile(r"^(?:CHAP|STORY|[IVXLC]+\b|\d+\b|BOOK |PART )", re.I)
ORIGIN = re.compile(
    r"^\(?(?:From|Translated|Taken|Adapted|Told|Collected) .{0,120}$")
SCHOLARLY = re.compile(
    r"^(?:Sources?|Parallels?|Remarks|Authority|Notes?|\d+ Full page)\b"
    r" ?[.:\-l]")
SOURCE_NOTE = any_of(r"^[\[(].*[\])]\.?$", r"^(?:The End|End of)", flags=re.I)
SENTENCE = re.compile(
    r"\b(?:was|were|is|it|he|she|they|I|you|and|his|her)\b|['\"!?]$")
DROP_CAPITAL = re.compile(r"^(['\"]?)([A-Z])([A-Z]+)\b((?: [A-Z]{2,}\b)*)")


def to_ascii(text):
    """Quotation marks, dashes and ligatures spelt out, accents dropped."""
    text = unicodedata.normalize("NFKD", text.translate(ASCII))
    return "".join(c for c in text if c == "\n" or " " <= c <= "~")


def book_body(text):
    """The e-text without Project Gutenberg's header and footer."""
    start = re.search(r"\*\*\* ?START[^\n]*(?:\n[^\n]+)?\*\*\*[^\n]*\n", text)
    if start:
        text = text[start.end():]
    end = re.search(
        r"\n\*\*\* ?END|\nEnd of (?:the |this )?Project Gutenberg", text, re.I)
    return text[:end.start()] if end else text


def paragraphs(text):
    """Yields (empty lines before it, paragraph with its line ends)."""
    n_empty, lines = 9, []
    for line in text.split("\n") + [""]:
        if line.strip():
            lines.append(line)
        elif lines:
            yield n_empty, "\n".join(lines)
            n_empty, lines = 1, []
        else:
            n_empty += 1


def unwrap(paragraph):
    """One line, or the lines of verse: mostly shorter than a page is wide."""
    lines = [line.strip() for line in paragraph.split("\n")]
    n_short = sum(len(line) < 52 for line in lines[:-1])
    verse = len(lines) > 1 and n_short >= 0.7 * (len(lines) - 1)
    return lines if verse else [" ".join(lines)]


def clean_line(line):
    """Without notes, their marks, markup and double blanks."""
    line = PICTURE_OR_NOTE.sub("", line)
    line = re.sub(r"\[\w{1,3}\]|\(\d+\)|\{\d+\}", "", line)
    line = re.sub(r"[_=*#~|<>^\\{}@]", "", line)
    line = re.sub(r"\s*--+\s*", "--", line).replace("''", '"')
    return re.sub(r"[ \t]+", " ", line).strip()


def is_heading(paragraph, n_empty):
    """Whether it is a title, by its looks: far below the text before it and
    not a sentence, or all in capitals, or numbered as a chapter."""
    text = paragraph.strip()
    if re.match(r"\*\*\*|\[|\(", text):
        return False
    n_words = len(text.split())
    if (n_empty >= 3 and "\n" not in text and len(text) < 75 and n_words < 13
            and re.match(
                r"['\"]?(?:\d+\.?\s+)?(?:[IVXL]+\.\s*)?['\"]?[A-Z]", text)
            and not re.search(r"[,;:!?]['\"]?$", text)
            and (not re.search(r"[a-z] \w+\.$", text)
                 or (n_empty >= 4 and n_words < 7))):
        return True
    if (len(text) > 90 or text.count("\n") > 1
            or not re.search(r"[A-Za-z]{2}", text)):
        return False
    text = re.sub(r"\[\w+\]|\(\d+\)", "", text)
    text = re.sub(r"(?<=[A-Z])'s\b", "'S", text)
    if not re.search(r"[a-z]", text):
        return not re.search(r"[!?,;\"]$|^\"|^'.*'$", text)
    return bool(re.match(r"(?:Chapter|CHAPTER|Story|STORY|[IVXL]+\.) ", text))


def title_case(title):
    words = title.lower().split()
    return " ".join(w if i and w in SMALL_WORDS else w[:1].upper() + w[1:]
                    for i, w in enumerate(words))


def is_tale(title, text):
    return (title is not None and len(text) > 250
            and not FRONT_OR_BACK_MATTER.match(title)
            and not NOT_A_TALE.search(text[:400])
            and "Campbell, No" not in text)


def drop_trailing_notes(pieces):
    """Removes what follows a tale's end: sources, "THE END", signatures."""
    while pieces and (
            SOURCE_NOTE.match(pieces[-1])
            or (len(pieces[-1]) < 90 and not SENTENCE.search(pieces[-1]))):
        pieces.pop()


def lower_drop_capital(paragraph):
    """'ONCE UPON a time' opens as 'Once upon a time'."""
    return DROP_CAPITAL.sub(
        lambda m: m[1] + m[2] + (m[3] + m[4]).lower(), paragraph)


def split_tales(text, kind):
    """[(title, text)] of one book, an e-text in ASCII. `kind` is "tales", or
    "novel": there a short line below a heading is the chapter's subtitle."""
    found, title, pieces = [], None, []

    def finish():
        drop_trailing_notes(pieces)
        body = "\n\n".join(pieces).strip()
        if is_tale(title, body):
            found.append((title, body))
        pieces.clear()

    after_heading = False
    for n_empty, paragraph in paragraphs(book_body(text)):
        if is_heading(paragraph, n_empty):
            heading = clean_line(" ".join(paragraph.split()))
            if (BACK_MATTER.match(heading)
                    and sum(len(body) for _, body in found) > 50000):
                break
            heading = re.sub(r"^\d+\.?\s+(?=['\"A-Z])", "", heading)
            name = heading.strip(" .:-")
            if NUMBERED.match(heading):
                name = NUMBERING.sub("", heading).strip(" .:-")
            if after_heading and not pieces:
                title = name or title  # two headings in a row
            elif not name and re.match(r"[IVXLC\d]+\.?$", heading):
                continue  # a section's number inside a tale
            else:
                finish()
                title = name
            after_heading = True
            continue
        if (after_heading and kind == "novel" and not pieces
                and len(paragraph) < 80 and "\n" not in paragraph.strip()
                and not re.search(r"[.!?:'\",]$", paragraph.strip())):
            continue
        after_heading = False
        lines = [clean_line(line) for line in unwrap(paragraph)]
        body = "\n".join(line for line in lines if line)
        if not re.search(r"[a-z]", body) or ORIGIN.match(body):
            continue
        if not pieces:
            body = lower_drop_capital(body)
        if not SCHOLARLY.match(body):
            pieces.append(body)
    finish()
    return found


def read_book(path, kind):
    """split_tales of a file in UTF-8 or Latin-1."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    text = to_ascii(text.replace("\r\n", "\n").replace("\r", "\n"))
    return split_tales(PICTURE_OR_NOTE.sub("", text), kind)


def shingles(text, n_words=8):
    """Hashes of all runs of n_words words, to find shared passages."""
    words = re.findall(r"[a-z]+", text.lower())
    return {hash(" ".join(words[i:i + n_words]))
            for i in range(max(1, len(words) - n_words))}


def without_repeats(train, heldout):
    """The training tales that share at most 2 % of their 8-word runs with
    held-out ones and at most half with training tales before them."""
    secret = set().union(*(shingles(tale["text"]) for tale in heldout))
    seen, kept = set(), []
    for tale in train:
        own = shingles(tale["text"])
        if (len(own & secret) <= 0.02 * len(own)
                and len(own & seen) <= 0.5 * len(own)):
            seen |= own
            kept.append(tale)
    return kept


def from_books(raw):
    """(train, heldout, text) of the books named in books.tsv. `text` is the
    first 160,000 characters of the held-out tales, cut at a paragraph."""
    sets = {"train": [], "heldout": []}
    with open(Path(__file__).with_name("books.tsv"), encoding="utf-8") as f:
        for book in csv.DictReader(f, delimiter="\t"):
            found = read_book(raw / (book["number"] + ".txt"), book["kind"])
            print(f"{book['title']}: {len(found)} pieces, "
                  f"{sum(len(text) for _, text in found) // 1000} kB")
            is_novel = book["kind"] == "novel"  # its chapters go untitled
            sets[book["use"]] += [
                {"book": book["title"], "text": text,
                 "title": "" if is_novel else title_case(title)}
                for title, text in found]
    heldout = sets["heldout"]
    train = without_repeats(sets["train"], heldout)
    print(f"{len(sets['train']) - len(train)} repeated tales dropped")
    text = "\n\n".join(tales.full_text(tale) for tale in heldout)[:160000]
    return train, heldout, text[:text.rfind("\n\n")] + "\n"


def from_text(path, heldout_share):
    """(train, heldout, text) of one plain text as one untitled tale."""
    text = path.read_text(encoding="utf-8").strip()
    cut = text.rfind("\n\n", 0, int(len(text) * (1 - heldout_share)))
    if cut < 0:
        raise SystemExit(f"{path}: no empty line to cut at; separate "
                         "paragraphs by empty lines")
    parts = text[:cut], text[cut + 2:]
    train, heldout = ([{"book": path.name, "title": "", "text": part}]
                      for part in parts)
    return train, heldout, parts[1] + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    source = parser.add_subparsers(dest="source", required=True)
    books = source.add_parser("books", help="the e-texts of books.tsv")
    books.add_argument("raw", type=Path, help="directory with NUMBER.txt")
    text = source.add_parser("text", help="one plain text")
    text.add_argument("file", type=Path)
    text.add_argument("--heldout-share", type=float, default=0.1)
    for sub in (books, text):
        sub.add_argument("out", type=Path)
    args = parser.parse_args()

    if args.source == "books":
        train, heldout, heldout_text = from_books(args.raw)
    else:
        train, heldout, heldout_text = from_text(args.file, args.heldout_share)
    args.out.mkdir(parents=True, exist_ok=True)
    tales.write(args.out / "train.jsonl", train)
    tales.write(args.out / "heldout.jsonl", heldout)
    (args.out / "heldout.txt").write_text(heldout_text, encoding="utf-8")
    print(f"{len(train)} tales to train on, "
          f"{sum(len(tale['text']) for tale in train)} characters; "
          f"{len(heldout)} held out, {len(heldout_text)} characters in "
          "heldout.txt")


if __name__ == "__main__":
    main()
