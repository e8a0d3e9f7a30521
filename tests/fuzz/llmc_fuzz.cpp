// An llm.c shard from anyone: it is refused with an Error, or every token of it can be read.
//
// Input: u8 whether to put the right count into the header, then the shard.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "plugins/data/tokens/megatron_index.hpp"
#include "prun/error.hpp"

namespace {

using prun::tokens::TokenStream;
using prun::tokens::TokenType;

void expect(bool promise) {
  if (!promise) std::abort();
}

// Read at any alignment and of any type; each token is one within range or an error.
void read_as(TokenType type, std::span<const std::byte> bytes) {
  TokenStream stream(type);
  stream.append("fuzz.bin", bytes, 0, bytes.size() / size_of(type));
  std::vector<std::int32_t> tokens(stream.tokens());
  stream.read(0, tokens.size(), tokens.data());
  for (const std::int32_t token : tokens) expect(token >= 0);
}

void read_shard(std::span<const std::byte> file) {
  const prun::tokens::LlmcHeader header = prun::tokens::parse_llmc_header("fuzz.bin", file);
  expect(prun::tokens::llmc_header_bytes + header.tokens * size_of(header.type) == file.size());
  read_as(header.type, file.subspan(prun::tokens::llmc_header_bytes));
}

template <class Body>
void accept_or_refuse(Body&& body) {
  try {
    body();
  } catch (const prun::Error& error) {
    expect(error.code() == prun::ErrorCode::bad_input);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data + 1);
  std::vector<std::byte> file(bytes, bytes + size - 1);
  if (data[0] % 2 == 1 && file.size() > prun::tokens::llmc_header_bytes) {
    const auto left = static_cast<std::int32_t>(file.size() - prun::tokens::llmc_header_bytes);
    const std::int32_t count = data[0] % 4 == 1 ? left / 2 : left / 4;
    std::memcpy(file.data() + 8, &count, sizeof count);
  }
  accept_or_refuse([&] { read_shard(file); });
  accept_or_refuse([&] { read_as(static_cast<TokenType>(data[0] % 7), file); });
  return 0;
}
