// Reads a `.bin` of llm.c: it has 256 numbers of type i32, then the tokens.
//
//   magic 20240520, version 1: u16 tokens (GPT-2)     magic 20240801, version 7: u32 tokens (Llama 3)
//   The third number is the count of tokens; they fill the file exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "token_stream.hpp"

namespace prun::tokens {

inline constexpr std::uint64_t llmc_header_bytes = 1024;

struct LlmcHeader {
  TokenType type = TokenType::u16;
  std::uint64_t tokens = 0;
};

// Reads the header only. `file` is the whole file, `name` is for messages. Throws bad_input.
LlmcHeader parse_llmc_header(const std::string& name, std::span<const std::byte> file);

}  // namespace prun::tokens
