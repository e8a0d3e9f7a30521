// Shows one sample of a recipe's data to people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/open_recipe.hpp"
#include "prun/data.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun {

class ShownSample {
 public:
  // Opens [data]. Throws what its plugin does, and bad_input for a sample that is not there.
  ShownSample(const Recipe& recipe, PluginHost& plugins, std::int64_t index);

  // Prints it on standard output, in colour on a terminal; elsewhere learned tokens stand between marks.
  void print(bool tokens) const;

 private:
  // Hides what data.mask hides, or data.spans cuts out, in the run's sample of the same number.
  void hide(const Recipe& recipe, PluginHost& plugins);
  std::string text_of(std::int32_t token) const;
  // Returns the token that is learned at a position, or a negative number; for the next token, whose text
  // stands there, that is known one position before.
  std::int32_t learned_at(std::size_t position) const;
  void print_text() const;
  void print_tokens() const;

  DataInfo info_;
  std::int64_t index_;
  bool bytes_ = false;     // says that tokens are those of a text
  bool in_place_ = false;  // says that a target is of its own position, and not seen there
  std::optional<Tokenizer> tokenizer_;
  std::vector<std::int32_t> tokens_, targets_;
  bool colour_ = false;
};

}  // namespace prun
