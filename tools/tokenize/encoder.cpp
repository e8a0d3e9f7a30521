#include "tokenize/encoder.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr std::size_t memo_entries = 1 << 14;

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer)
    : tables_(tokenizer.tables()),
      splitter_(tables_.words),
      merger_(tables_.merges, tables_.bytes),
      memo_(memo_entries) {
  for (const AddedToken& token : tables_.added)
    starts_[token.normalized ? 1 : 0][static_cast<unsigned char>(token.text[0])].push_back(&token);
  for (Starts& starts : starts_)
    for (std::vector<const AddedToken*>& tokens : starts)
      std::sort(tokens.begin(), tokens.end(),
                [](const AddedToken* a, const AddedToken* b) { return a->text.size() > b->text.size(); });
}

void Encoder::append(std::string_view text, std::vector<TokenId>& out) {
  if (const std::size_t broken = valid_utf8_start(text); broken != text.size())
    throw_error(ErrorCode::bad_input, "the text is not UTF-8 at byte ", broken, "; mend it");
  append_between(starts_.data(), text, out);
}

const AddedToken* Encoder::match(const Starts& starts, std::string_view text) {
  for (const AddedToken* token : starts[static_cast<unsigned char>(text[0])])
    if (text.starts_with(token->text)) return token;
  return nullptr;
}

// Added tokens, and what lies between them: the leftmost first, of several there the longest.
void Encoder::append_between(const Starts* starts, std::string_view text, std::vector<TokenId>& out) {
  if (starts == starts_.data() + starts_.size()) return append_words(text, out);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* const token = match(*starts, text.substr(at));
    if (!token) {
      ++at;
      continue;
    }
    append_behind(starts, text.substr(begin, at - begin), out);
    out.push_back(token->id);
    begin = at += token->text.size();
  }
  append_behind(starts, text.substr(begin), out);
}

// What lies between tokens that are looked for as they are is normalized, and the others are looked for
// there.
void Encoder::append_behind(const Starts* starts, std::string_view text, std::vector<TokenId>& out) {
  const bool normalize = starts == starts_.data() && tables_.normal_form;
  append_between(starts + 1, normalize ? tables_.normal_form->of(text, normal_) : text, out);
}

void Encoder::append_words(std::string_view text, std::vector<TokenId>& out) {
  while (!text.empty()) {
    const std::size_t length = splitter_.first_word(text);
    append_word(text.substr(0, length), out);
    text.remove_prefix(length);
  }
}

void Encoder::append_word(std::string_view word, std::vector<TokenId>& out) {
  if (word.size() > Memo::longest) return append_new_word(word, out);
  Memo& memo = memo_[std::hash<std::string_view>()(word) % memo_.size()];
  if (memo.bytes == word.size() && std::memcmp(memo.word, word.data(), word.size()) == 0) {
    out.insert(out.end(), memo.tokens, memo.tokens + memo.count);
    return;
  }
  const std::size_t before = out.size();
  append_new_word(word, out);
  const std::size_t count = out.size() - before;
  if (count > Memo::most) return;
  memo.bytes = static_cast<std::uint8_t>(word.size());
  memo.count = static_cast<std::uint8_t>(count);
  std::copy(word.begin(), word.end(), memo.word);
  std::copy(out.end() - static_cast<std::ptrdiff_t>(count), out.end(), memo.tokens);
}

void Encoder::append_new_word(std::string_view word, std::vector<TokenId>& out) {
  if (!tables_.whole.empty())
    if (const auto found = tables_.whole.find(std::string(word)); found != tables_.whole.end())
      return out.push_back(found->second);
  merger_.append(word, out);
}

}  // namespace prun
