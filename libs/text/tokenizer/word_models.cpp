#include "tokenizer/word_models.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun {

void WordEncoder::append(std::string_view word, std::vector<TokenId>& out) {
  if (model_.kind == ModelKind::unigram) return append_unigram(word, out);
  if (model_.kind == ModelKind::word_pieces) return append_pieces(word, out);
  if (!model_.whole.empty())
    if (const auto found = model_.whole.find(std::string(word)); found != model_.whole.end())
      return out.push_back(found->second);
  symbols_.clear();
  if (model_.kind == ModelKind::byte_pairs)
    set_bytes(word);
  else
    set_letters(word);
  merger_.append(symbols_, out);
}

void WordEncoder::set_bytes(std::string_view word) {
  for (const char byte : word) symbols_.push_back(model_.bytes[static_cast<unsigned char>(byte)]);
}

// Sets each character, or where it is no token its bytes, or the unknown token.
void WordEncoder::set_letters(std::string_view word) {
  bool unknown = false;
  while (!word.empty()) {
    const std::string_view letter = word.substr(0, decode_utf8(word).bytes);
    word.remove_prefix(letter.size());
    const TokenId token = model_.pieces.find(letter);
    const bool was_unknown = unknown;
    unknown = token < 0 && !model_.byte_fallback;
    if (token >= 0)
      symbols_.push_back(token);
    else if (model_.byte_fallback)
      set_bytes(letter);
    else if (!was_unknown || !model_.fuse_unknown)
      symbols_.push_back(model_.unknown);
  }
}

// --- unigram: of all ways to write the word as tokens the one with the largest sum of scores

void WordEncoder::find_best(std::string_view word) {
  best_.assign(word.size() + 1, {});
  const auto offer = [&](std::size_t begin, std::size_t end, TokenId token, double score) {
    Best& best = best_[end];
    const double sum = score + best_[begin].score;
    if (best.begin == Best::none || sum > best.score) best = {token, sum, begin};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t letter = decode_utf8(word.substr(at)).bytes;
    bool has_letter = false;
    model_.pieces.for_each_prefix(word.substr(at), [&](TokenId token, std::size_t bytes) {
      offer(at, at + bytes, token, model_.scores[static_cast<std::size_t>(token)]);
      has_letter = has_letter || bytes == letter;
    });
    if (!has_letter) offer(at, at + letter, model_.unknown, model_.unknown_score);
    at += letter;
  }
}

// Unknown characters in a row are one text, which is a token or unknown.
void WordEncoder::append_unigram(std::string_view word, std::vector<TokenId>& out) {
  find_best(word);
  borders_.clear();
  for (std::size_t at = word.size(); at > 0; at = best_[at].begin) borders_.push_back(at);
  std::size_t begin = 0;
  for (std::size_t i = borders_.size(); i-- > 0;) {
    const std::size_t end = borders_[i];
    if (best_[end].token != model_.unknown) {
      out.push_back(best_[end].token);
    } else if (i > 0 && best_[borders_[i - 1]].token == model_.unknown) {
      continue;
    } else {
      append_unknown(word.substr(begin, end - begin), out);
    }
    begin = end;
  }
}

void WordEncoder::append_unknown(std::string_view text, std::vector<TokenId>& out) const {
  const TokenId known = model_.pieces.find(text);
  if (known < 0 && model_.byte_fallback)
    for (const char byte : text) out.push_back(model_.bytes[static_cast<unsigned char>(byte)]);
  else
    out.push_back(known < 0 ? model_.unknown : known);
}

// --- word pieces: the longest that there is, again and again; a word that does not come out is unknown

void WordEncoder::append_pieces(std::string_view word, std::vector<TokenId>& out) const {
  const std::size_t before = out.size();
  const auto letters = static_cast<std::size_t>(std::count_if(
      word.begin(), word.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
  const TokenId inside = model_.pieces.node_of(model_.continuing);
  bool first = true, known = letters <= model_.longest;
  while (known && !word.empty()) {
    TokenId token = -1;
    std::size_t bytes = 0;
    if (first || inside >= 0)
      model_.pieces.for_each_prefix(
          word,
          [&](TokenId found, std::size_t of) {
            token = found;
            bytes = of;
          },
          first ? 0 : inside);
    known = token >= 0;
    if (known) out.push_back(token);
    word.remove_prefix(bytes);
    first = false;
  }
  if (known) return;
  out.resize(before);
  out.push_back(model_.unknown);
}

}  // namespace prun
