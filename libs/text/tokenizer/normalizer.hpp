// What is done to a text before words are looked for in it, as the `normalizer` of a tokenizer.json lists it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/charsmap.hpp"
#include "tokenizer/normal_form.hpp"

namespace prun {

// Puts a text in front of one that is not empty.
struct PrependText {
  std::string text;
};
// Puts `to` in the place of each `from`, or of each run of two of it and more.
struct ReplaceText {
  std::string from, to;
  bool runs = false;
};
// Takes white space off.
struct StripSpaces {
  bool left = true, right = true;
};
struct LowerCase {};
// Takes off all marks that combine.
struct StripAccents {};
// Cleans a text as BERT does.
struct BertClean {
  bool clean = true, chinese = true, accents = true, lower = true;
};

class Normalizer {
 public:
  // Holds the results of two steps alternately. Each thread has one.
  using Scratch = std::array<std::string, 2>;
  using Step = std::variant<PrependText, ReplaceText, StripSpaces, LowerCase, StripAccents, BertClean,
                            std::shared_ptr<const NormalForm>, std::shared_ptr<const Charsmap>>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Returns the text, or what was made of it, which is in `scratch`. It is UTF-8.
  std::string_view of(std::string_view text, Scratch& scratch) const;

  bool empty() const { return steps_.empty(); }
  // Says whether a text may be normalized in pieces, cut between any two letters of ASCII; and in front of
  // this one.
  bool works_by_letters() const;
  bool may_cut_before(char32_t value) const;
  // Says whether it puts something before each text.
  bool puts_in_front() const;

 private:
  std::vector<Step> steps_;
};

}  // namespace prun
