// Fuzz entry for tokenizer.json: refused with bad_input, or a tokenizer that encodes a text into its own
// tokens. Four bytes say which part of a good file the rest takes the place of, so that it is not always the
// start that is wrong; an input that is shorter is a file by itself.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "prun/error.hpp"
#include "tokenizer/tokenizer.hpp"

namespace {

void put_letter(std::string& out, int code) {
  if (code < 0x80) {
    if (code == '"' || code == '\\') out += '\\';
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Small, with all that a file may have.
std::string good_file() {
  std::string vocab;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    vocab += '"';
    put_letter(vocab, itself ? byte : 0x100 + others++);
    vocab += "\":" + std::to_string(byte) + ",";
  }
  return R"({"version":"1.0","added_tokens":[{"id":258,"content":"<|end|>","special":true,"normalized":false}],)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
         R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"e"}},{"Sequence":{}}],)"
         R"("pair":[],"special_tokens":{"e":{"id":"e","ids":[258],"tokens":["<|end|>"]}}},)"
         R"("model":{"type":"BPE","ignore_merges":true,"vocab":{)" +
         vocab + R"("ab":256,"abc":257},"merges":[["a","b"],"ab c"]}})";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string good = good_file();
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size >= 4) {
    std::uint16_t at = 0, length = 0;
    std::memcpy(&at, data, sizeof at);
    std::memcpy(&length, data + sizeof at, sizeof length);
    file = good;
    file.replace(at % good.size(), length % 64, reinterpret_cast<const char*>(data) + 4, size - 4);
  }
  try {
    const prun::Tokenizer tokenizer(file, "fuzz");
    const std::vector<prun::TokenId> ids = tokenizer.encode("abc ab's <|end|> \xC3\xA4\n\n 12\n");
    for (const prun::TokenId id : ids)
      if (id < 0 || id >= tokenizer.size()) std::abort();
    if (tokenizer.decode(ids).empty()) std::abort();
  } catch (const prun::Error& error) {
    if (error.code() != prun::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
