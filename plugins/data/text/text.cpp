// Implements the plugin `data.text`: it trains on the bytes of a file or of the text files of a folder.
#include "prun/plugin.hpp"
#include "text_data.hpp"

PRUN_PLUGIN(
    data, prun::text::TextData, "text", "0.1.0", "Bytes of text files as tokens (vocabulary 256)",
    "token_bytes=1; tokens=bytes; also=bytes,txt,raw",
    "path | string | required | | Text file, or a folder to search for text files\n"
    "extensions | strings | [] | | File name endings to include; none: every file that looks like text\n"
    "exclude | strings | [\".git\", \"build\", \"runs\"] | | Names of files and folders to skip\n"
    "max_bytes | int | 268435456 | 1.. | Maximum bytes of text to load; more is an error\n");
