/* The hooks reject a commit whose staged files or message break the rules of
 * form. The prose of new lines is checked; old lines are left alone. Each
 * script runs in a repository of its own: 2 s of processor time in all. */
#include "lib/command.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shell commands that run Git without the user's configuration. */
#define PLAIN                                                                  \
    "unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE PLAIT_BASE; "                  \
    "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 "                \
    "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "             \
    "GIT_COMMITTER_EMAIL=a@b PYTHONPATH=scripts; "
#define IN_REPO PLAIN "cd repo || exit; "
#define PROSE                                                                  \
    "python3 -c 'import prose\n"                                               \
    "for c in prose.complaints(prose.base()): print(*c)'"

static void must_print(struct ran r, const char *text)
{
    if (strstr(r.out, text) == NULL)
        fail_msg("%s\n  should print \"%s\" but did: %.500s", r.line, text,
                 r.out);
}

/* Makes the repository once, with the hooks and two commits, because new lines
 * are those since an earlier commit. */
static void need_repo(void)
{
    static const char *const tools[] = {"git", "make", "python3",
                                        "clang-format"};
    static bool made;
    char *line;

    if (made)
        return;
    for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++) {
        char has[64];

        snprintf(has, sizeof(has), "command -v %s >/dev/null", tools[i]);
        if (system(has) != 0)
            TEST_SKIP("no %s", tools[i]);
    }
    if (asprintf(&line,
                 PLAIN "mkdir repo && cp -r '%s' '%s' '%s' repo && cd repo && "
                       "mkdir src doc && echo build >.gitignore && "
                       "printf '/* What was. */\\n' >src/old.c && "
                       "git init -q && git add . && git commit -qm start && "
                       "git commit -qm second --allow-empty && "
                       "make -s hooks",
                 test_file("scripts"), test_file("Makefile"),
                 test_file(".clang-format")) < 0)
        fail_msg("no memory");
    must_print(sh(0, line), "scripts/hooks/pre-commit");
    free(line);
    made = true;
}

TEST(commit_subjects_name_an_area_and_begin_with_a_verb)
{
    static const struct {
        int code;
        const char *message, *said;
    } tries[] = {
        {0, "cpu: unroll the sums", ""},
        {0, "src/a_b-c.h: drop it", ""},
        {0,
         "# a comment\n\ncpu: keep 60 "
         "78901234567890123456789012345678901234567890123\n",
         ""},
        {1, "cpu: keep 61 789012345678901234567890123456789012345678901234",
         "61 characters, 60 allowed"},
        {1, "unroll the sums", "not \"area: verb object\" (unroll the sums)"},
        {1, "CPU: unroll the sums", "not \"area: verb object\""},
        {1, "cpu: Unroll the sums", "not \"area: verb object\""},
        {1, "cpu: the sums are unrolled", "no verb after the area (the)"},
        {1, "cpu: unroll; drop it", "two changes"},
        {1, "cpu: unroll\nthe sums", "line 2: not blank (the sums)"},
        {0, "Merge branch 'other'; it is long, but Git says it in this way..",
         ""},
        {0, "Revert \"Cpu\"", ""},
        {0, "fixup! CPU", ""},
        {0, "squash! CPU", ""},
    };

    need_repo();
    for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++) {
        char line[2048];

        snprintf(line, sizeof(line),
                 IN_REPO "cat >../message <<'END'\n%s\nEND\n"
                         "scripts/hooks/commit-msg ../message",
                 tries[i].message);
        must_say(sh(tries[i].code, line), tries[i].said);
    }
}

TEST(commits_have_a_body_unless_only_docs_or_tests_change)
{
    need_repo();
    sh(0, IN_REPO "mkdir -p tests && echo a >doc/a.txt && echo a >a.md && "
                  "echo a >tests/a && git add doc tests a.md && "
                  "git commit -qm 'doc: add a'");
    must_say(sh(1, IN_REPO "printf '/* A. */\\n' >src/a.c && git add src && "
                           "git commit -m 'a: add a'"),
             "body: missing, and src/a.c changes");
    must_say(sh(1, IN_REPO "git commit -m 'a: add a' -m 'Signed-off-by: a'"),
             "body: missing");
    sh(0, IN_REPO "git commit -qm 'a: add a' -m 'Because.'");
}

TEST(staged_content_is_checked_and_not_the_working_tree)
{
    need_repo();
    must_print(sh(1, IN_REPO "printf '/* B. */\\nint  b;\\n' >src/b.c && "
                             "git add src && printf '/* B. */\\n' >src/b.c && "
                             "git commit -m 'b: add b' -m 'Because.' 2>&1"),
               "src/b.c:2: run clang-format");
    sh(0, IN_REPO "git add src && printf 'int  b;\\n' >src/b.c && "
                  "git commit -qm 'b: add b' -m 'Because.' && "
                  "git checkout -q src");
    must_print(sh(1, IN_REPO "printf '/* %078d */\\n' 1 >src/c.c && "
                             "git add src && git commit -m 'c: add c' 2>&1"),
               "src/c.c:1: 84 columns");
    must_print(sh(1, IN_REPO "printf 'int c;\\n' >src/c.c && git add src && "
                             "git commit -m 'c: add c' 2>&1"),
               "src/c.c:1: opens without a comment");
    must_print(sh(1, IN_REPO "mv src/c.c doc/b.c && git add . && "
                             "git commit -m 'c: add c' 2>&1"),
               "src/b.c:1: doc/b.c has this name too");
    sh(0, IN_REPO "git reset -q --hard");
}

TEST(hooks_are_those_of_each_worktree_and_replace_no_others)
{
    need_repo();
    must_say(sh(1, IN_REPO "git worktree add -q ../tree 2>&1 && cd ../tree && "
                           "git commit --allow-empty -m 'no area'"),
             "not \"area: verb object\"");
    must_say(sh(2, IN_REPO "git config core.hooksPath other && make hooks"),
             "core.hooksPath is other already");
    sh(0, IN_REPO "git config core.hooksPath scripts/hooks");
}

TEST(prose_of_new_lines_is_checked_and_old_or_moved_ones_are_not)
{
    static const char *const texts[] = {
        "/* What is new. */",
        "/* Whether it is. */",
        "/* Is it\\n * new? */",
        "/* A.\\n * It is none\\n * of them. */",
        "int a; /* it is no number */",
        "/* It ends. Who waits is told. */",
        "/* It ends. Of these, one. */",
        ("/* It is no longer; there is no page; `is no x`. */\\n"
         "char *a = \"/* What it is no x */\"; // Which"),
    };
    static const char want[] =
        "n.md 8 \"Which\": begin with the subject or with a verb\n"
        "n.py 5 \"Who\": begin with the subject or with a verb\n"
        "n0.c 1 \"What\": begin with the subject or with a verb\n"
        "n1.c 1 \"Whether\": begin with the subject or with a verb\n"
        "n2.c 1 \"Is it new?\": state it, do not ask\n"
        "n3.c 2 \"is none of\": write \"is not one of\"\n"
        "n4.c 1 \"is no number\": negate the verb: \"is not a ...\"\n"
        "n5.c 1 \". Who w\": name the thread, client or caller\n"
        "n6.c 1 \". Of t\": put the noun before its \"of\"\n"
        "n7.c 2 \"Which\": begin with the subject or with a verb\n";
    char line[4096] = IN_REPO;

    need_repo();
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        size_t n = strlen(line);

        snprintf(line + n, sizeof(line) - n, "printf '%s\\n' >n%zu.c; ",
                 texts[i], i);
    }
    strcat(line, "printf '# How to\\n\\nA.\\n\\n    What\\n\\n- `What`\\n"
                 "- Which?\\n' >n.md; "
                 "printf 'a = \"# What\"\\n# A.\\n# What\\ndef f():\\n"
                 "    \"\"\"Who.\"\"\"\\n' >n.py; git add . && " PROSE);
    assert_string_equal(sh(0, line).out, want);
    assert_int_equal(sh(0, IN_REPO "git reset -q --hard && "
                                   "echo '/* New. */' >>src/old.c && " PROSE)
                         .n_out,
                     0);
    assert_int_equal(sh(0, IN_REPO "cat src/old.c >>src/b.c && "
                                   "git rm -qf src/old.c && " PROSE)
                         .n_out,
                     0);
    must_say(sh(1, IN_REPO "PLAIT_BASE=none " PROSE),
             "PLAIT_BASE: not a commit (none)");
    sh(0, IN_REPO "git reset -q --hard");
}

TEST(prose_of_old_lines_is_checked_but_in_rooms_that_are_left)
{
    need_repo();
    assert_string_equal(
        sh(0, IN_REPO "mkdir models && cp src/old.c models && python3 -c '"
                      "import prose\n"
                      "for c in prose.complaints(None, [\"src/old.c\", "
                      "\"models/old.c\", \"Makefile\"]): print(*c)' && "
                      "rm -r models")
            .out,
        "src/old.c 1 \"What\": begin with the subject or with a verb\n");
}

TEST(tracked_files_have_a_limit_together)
{
    need_repo();
    must_print(sh(0, IN_REPO "for i in 1 2 3 4; do truncate -s 10M big$i; done "
                             "&& python3 -c 'import check\n"
                             "n = [f\"big{i}\" for i in range(1, 5)]\n"
                             "print(check.check_sum(n), check.complaints)\n"
                             "check.check_sum(n + [\"Makefile\"])\n"
                             "print(check.complaints)' && rm big?"),
               "41943040 []\n[('.', 1, '4194");
}
