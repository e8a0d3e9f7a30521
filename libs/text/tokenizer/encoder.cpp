#include "tokenizer/encoder.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "tokenizer/letters.hpp"

namespace prun {
namespace {

constexpr std::size_t memo_entries = 1 << 14;

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer)
    : tables_(tokenizer.tables()), cutter_(tables_.cutting), words_(tables_.model), memo_(memo_entries) {
  for (const AddedToken& token : tables_.added) {
    Starts& starts = starts_[token.normalized ? 1 : 0];
    starts.tokens.emplace(token.text, &token);
    starts.lengths[static_cast<unsigned char>(token.text[0])].push_back(token.text.size());
  }
  for (Starts& starts : starts_)
    for (std::vector<std::size_t>& lengths : starts.lengths) {
      std::sort(lengths.begin(), lengths.end(), std::greater<>());
      lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    }
}

void Encoder::append(std::string_view text, std::vector<TokenId>& out) {
  if (const std::size_t broken = valid_utf8_start(text); broken != text.size())
    throw_error(ErrorCode::bad_input, "the text is not UTF-8 at byte ", broken, "; mend it");
  append_between(0, text, true, out);
}

const AddedToken* Encoder::match(const Starts& starts, std::string_view text) {
  for (const std::size_t length : starts.lengths[static_cast<unsigned char>(text[0])])
    if (length <= text.size())
      if (const auto found = starts.tokens.find(text.substr(0, length)); found != starts.tokens.end())
        return found->second;
  return nullptr;
}

namespace {

// Says whether no letter of a word lies beside a part of a text.
bool stands_alone(std::string_view text, std::size_t at, std::size_t size) {
  const auto is_word = [&](std::size_t i) {
    return is_of(LetterClass::word, decode_utf8(text.substr(i)).value);
  };
  std::size_t before = at;
  if (at > 0) do
      --before;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80);
  return (at == 0 || !is_word(before)) && (at + size == text.size() || !is_word(at + size));
}

}  // namespace

// Appends added tokens, and what is between them: the leftmost comes first, of several there the longest.
// `first` says that the whole text begins here.
void Encoder::append_between(std::size_t which, std::string_view text, bool first,
                             std::vector<TokenId>& out) {
  std::size_t begin = 0;
  for (std::size_t at = 0; which < starts_.size() && at < text.size();) {
    const AddedToken* const token = match(starts_[which], text.substr(at));
    if (!token) {
      ++at;
      continue;
    }
    if (token->alone && !stands_alone(text, at, token->text.size())) {
      at += token->text.size();
      continue;
    }
    std::string_view before = text.substr(begin, at - begin);
    if (token->takes_left) before.remove_suffix(trailing_spaces(before));
    append_behind(which, before, first && begin == 0, out);
    out.push_back(token->id);
    at += token->text.size();
    if (token->takes_right) at += leading_spaces(text.substr(at));
    begin = at;
  }
  append_behind(which, text.substr(begin), first && begin == 0, out);
}

// What lies between tokens that are looked for as they are is normalized, and the others are looked for
// there. What lies between those is cut into words.
void Encoder::append_behind(std::size_t which, std::string_view text, bool first, std::vector<TokenId>& out) {
  if (text.empty()) return;
  if (which == 0) return append_between(1, tables_.normalizer.of(text, normal_), first, out);
  cutter_.cut(text, first, [&](std::string_view word) { append_word(word, out); });
}

void Encoder::append_word(std::string_view word, std::vector<TokenId>& out) {
  if (word.size() > Memo::longest) return words_.append(word, out);
  Memo& memo = memo_[std::hash<std::string_view>()(word) % memo_.size()];
  if (memo.bytes == word.size() && std::memcmp(memo.word, word.data(), word.size()) == 0) {
    out.insert(out.end(), memo.tokens, memo.tokens + memo.count);
    return;
  }
  const std::size_t before = out.size();
  words_.append(word, out);
  const std::size_t count = out.size() - before;
  if (count > Memo::most) return;
  memo.bytes = static_cast<std::uint8_t>(word.size());
  memo.count = static_cast<std::uint8_t>(count);
  std::copy(word.begin(), word.end(), memo.word);
  std::copy(out.end() - static_cast<std::ptrdiff_t>(count), out.end(), memo.tokens);
}

}  // namespace prun
