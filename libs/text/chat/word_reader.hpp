// Reads the words of a template one by one, and refuses what is not expected.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/tokens.hpp"
#include "prun/error.hpp"

namespace prun::chat {

class WordReader {
 public:
  // `name` is the template's in messages, and outlives this.
  WordReader(std::vector<Word> words, const std::string& name) : words_(std::move(words)), name_(name) {}

  const Word& now() const { return words_[at_]; }
  const Word& next() const { return words_[std::min(at_ + 1, words_.size() - 1)]; }
  Word take() { return words_[at_ + 1 < words_.size() ? at_++ : at_]; }
  bool is_sign(std::string_view sign) const { return now().kind == WordKind::sign && now().text == sign; }
  bool is_name(std::string_view name) const { return now().kind == WordKind::name && now().text == name; }
  bool pass_sign(std::string_view sign) { return is_sign(sign) && (take(), true); }
  bool pass_name(std::string_view name) { return is_name(name) && (take(), true); }
  bool is_next_sign(std::string_view sign) const {
    return next().kind == WordKind::sign && next().text == sign;
  }
  void expect_sign(std::string_view sign) {
    if (!pass_sign(sign)) refuse("'" + std::string(sign) + "' is missing before '" + now().text + "'");
  }
  std::string take_name() {
    if (now().kind != WordKind::name) refuse("a name is missing before '" + now().text + "'");
    return take().text;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(ErrorCode::bad_input, name_, ":", now().line, ": ", what);
  }

  // Counts how deep it is while it lives.
  class Deeper {
   public:
    explicit Deeper(WordReader& words) : words_(words) {
      if (++words_.depth_ > deepest) words_.refuse("it is nested too deeply");
    }
    ~Deeper() { --words_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    WordReader& words_;
  };

 private:
  static constexpr int deepest = 200;

  std::vector<Word> words_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace prun::chat
