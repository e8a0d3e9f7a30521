// Reads whole files that a user names: recipes, configurations, tokenizers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace prun {

// ------------------------------------------------------------------- whole file

// Returns the bytes of a regular file of at most `most` bytes. A folder, a device or a pipe, which might
// never end, is not opened. Throws not_found or bad_input: `failed`, or "cannot read 'FILE'", and the reason
// behind it.
std::string whole_file(const std::filesystem::path& file, std::size_t most, std::string_view failed = {});

// ------------------------------------------------------------------- output file
// Writes the output of a command where the user says (`--out`): over an older output of its own kind, and
// over nothing else that holds something.

struct OutputKind {
  std::string what;  // what it is: "a page of prun report"
  std::string mark;  // mark that every text of the kind begins with, and hardly any other
};

// Throws bad_input if a file or folder stands at `target` that is no older output of the kind: call it before
// the work is done. What is no file (a pipe, a terminal, /dev/stdout) may take any output.
void check_output(const std::filesystem::path& target, const OutputKind& kind);

// Writes the output (see replace_text_file), after one more check.
void write_output(const std::filesystem::path& target, std::string_view text, const OutputKind& kind);

}  // namespace prun
