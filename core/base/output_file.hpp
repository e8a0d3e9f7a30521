// What a command writes where the user says (`--out`): in the place of an older output of its own kind, and
// of nothing else that holds something.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace prun {

struct OutputKind {
  std::string what;  // "a page of prun report"
  std::string mark;  // that every text of the kind begins with, and hardly any other
};

// Throws bad_input where a file or folder stands at `target` that is no older output of the kind: to be asked
// before the work is done. What is no file (a pipe, a terminal, /dev/stdout) may take any output.
void check_output(const std::filesystem::path& target, const OutputKind& kind);

// Writes it (see replace_text_file), checked once more.
void write_output(const std::filesystem::path& target, std::string_view text, const OutputKind& kind);

}  // namespace prun
