"""Checks: pure functions over what was given and what was answered, which return findings as short notes.

A note is a stable code, and after a blank what it is about. A finding never changes the text of an answer, nor
its status; whoever keeps notes can count them by their first word.

| code | what was found |
|---|---|
| `reasoning_leak` | a block of reasoning stood before the answer; it was taken off |
| `fence_removed`, `json_wrapper_removed` | the whole answer stood in a code fence or a JSON object; it was taken out |
| `duplicate_keys name` | an extracted object has a key twice; the last one counts |
| `preamble`, `explanation_added` | an introduction before the answer, a remark after it |
| `quotes_added`, `markup_added **`, `special_tokens </s>` | what the input does not have |
| `paragraphs 2→1`, `lines 4→3` | a translation has more or fewer than its text |
| `placeholder_missing %s`, `placeholder_added {x}` | and likewise `entity_…` and `tag_…` |
| `number_missing 1.5` | a number of the text whose value the translation has in no form |
| `glossary_missing term→target` | a term of the text whose target the translation has in no form |
| `untranslated`, `untranslated 2 lines` | the text, or lines of it, came back as they went |
| `language en expected lv` | the answer, or its end, is in another language |
| `repetition` | the answer ends in one piece over and over |
| `context_insufficient` | an answer that says that the context does not contain it |

What the checks get right is measured by `benchmarks/checks.py` over made texts in eight languages. Checks are built to
be silent where they are not certain: precision before recall.
"""
