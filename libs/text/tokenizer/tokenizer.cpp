#include "tokenizer/tokenizer.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "prun/error.hpp"
#include "tokenizer/letters.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- encoder

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

// Normalizes the text between tokens that are looked for as they are, looks for the other tokens there, and
// cuts the text between those into words.
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

namespace {

// ------------------------------------------------------------------- tokenizer

namespace fs = std::filesystem;

std::string without_spaces(std::string_view token) {
  std::string text(token);
  std::erase(text, ' ');
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// A token as it stands in a text, as the package writes it; it cleans up each by itself.
std::string word_piece(const DecodingRules& rules, std::string_view token, bool first) {
  constexpr std::pair<std::string_view, std::string_view> clean[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  const bool goes_on = token.starts_with(*rules.words);
  if (goes_on && !first) token.remove_prefix(rules.words->size());
  std::string text = first || goes_on ? std::string(token) : " " + std::string(token);
  if (rules.clean_up)
    for (const auto& [from, to] : clean) replace_all(text, from, to);
  return text;
}

bool begins_words(const CutAt& step) {
  return step.pattern && step.pattern->begins_at_spaces() && step.keep == CutAt::Keep::isolated &&
         !step.inverted;
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  const std::string failed = "cannot read " + in_quotes(file.string()) + " as a tokenizer.json";
  return {whole_file(file, JsonLimits{}.bytes, failed), file.string()};
}

// Texts are cut where words are found by an expression and letters of ASCII are as they are.
Tokenizer::Tokenizer(std::string_view json, const std::string& source)
    : tables_(read_tokenizer_json(json, source)) {
  const std::vector<CuttingStep>& steps = tables_.cutting;
  only_words_ = steps.size() == 1;
  const bool behind_digits = steps.size() == 2 && std::holds_alternative<CutDigits>(steps[0]);
  if ((only_words_ || behind_digits) && tables_.normalizer.works_by_letters()) {
    if (const CutWords* const words = std::get_if<CutWords>(&steps.back()))
      splitter_.emplace(words->rules);
    else if (const CutAt* const at = std::get_if<CutAt>(&steps.back()); at && begins_words(*at))
      splitter_.emplace(WordRules::spaces);
  }
  for (const AddedToken& token : tables_.added) {
    added_start_[static_cast<unsigned char>(token.text[0])] = true;
    added_hold_spaces_ |=
        token.takes_left || token.takes_right || token.text.find_first_of(" \n") != std::string::npos;
  }
}

std::optional<TokenId> Tokenizer::find_added(std::string_view text) const {
  for (const AddedToken& token : tables_.added)
    if (token.text == text) return token.id;
  return {};
}

std::optional<TokenId> Tokenizer::end_of_text() const {
  for (const char* text : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    if (const std::optional<TokenId> id = find_added(text)) return id;
  return {};
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  Encoder(*this).append(text, ids);
  return ids;
}

// Behind digits that stand alone only a space counts: a run of others would end with them.
bool Tokenizer::may_cut(std::string_view text, std::size_t at) const {
  return splitter_->may_cut(text, at) && (only_words_ || text[at] == ' ') &&
         !added_start_[static_cast<unsigned char>(text[at + 1])];
}

std::size_t Tokenizer::last_cut(std::string_view text, std::size_t longest) const {
  if (!splitter_ || added_hold_spaces_ || text.empty()) return 0;
  std::size_t at = std::min(longest, text.size() - 1);
  while (at > 0 && !may_cut(text, at)) --at;
  return at;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= size() || tables_.tokens[static_cast<std::size_t>(id)].empty())
    throw_error(ErrorCode::bad_input, "the tokenizer has no token ", id, "; its ids are below ", size());
  return tables_.tokens[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool begins) const {
  const DecodingRules& rules = tables_.decoding;
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool first = begins && i == 0;
    if (rules.words)
      text += word_piece(rules, bytes(ids[i]), first);
    else if (rules.strip_first && first)
      text += without_spaces(bytes(ids[i]));
    else
      text += bytes(ids[i]);
  }
  if (rules.strip_space && begins && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace prun
