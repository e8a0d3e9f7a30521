// Reads the words of the command that starts training, out of a shell script or a text of arguments. Nothing
// is run: variables, arrays, defaults and whole-number arithmetic are expanded; parts that only a run would
// know stay as they are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prun::convert {

// ------------------------------------------------------------------- shell words

struct ShellCommand {
  std::vector<std::string> launcher;   // those before the name of the .py file, such as torchrun's
  std::vector<std::string> arguments;  // those behind it; all words where there is no such name
  std::vector<std::string>
      branched;  // stand between `if` and `fi`, or in a loop or function, and were not read
};

// Throws bad_input where the text is no shell script.
ShellCommand read_shell(std::string_view text, std::string_view source);

// Says whether a word still has a part that only a run would know: "$1", "${DATA_PATH}", "<path>".
bool left_open(std::string_view word);

// ------------------------------------------------------------------- whole sum
// Computes products and sums of whole numbers while they are read: 2*3+4.

class WholeSum {
 public:
  // Adds a number and the sign after it; the last sign is a +. Returns false where one of them is invalid, or
  // the number divides by zero.
  bool add(std::string_view number, char behind);
  bool too_large() const { return too_large_; }
  std::int64_t value() const { return sum_; }

 private:
  std::int64_t sum_ = 0, product_ = 1;
  char last_ = '+', sign_ = '+';
  bool too_large_ = false;
};

}  // namespace prun::convert
