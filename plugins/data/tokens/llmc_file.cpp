// Checks an llm.c header against the size of its file.
#include "llmc_file.hpp"

#include "prun/error.hpp"

namespace prun::tokens {

namespace {

struct Kind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr Kind kinds[] = {{20240520, 1, TokenType::u16}, {20240801, 7, TokenType::u32}};

// Names llm.c's other files, so that a mix-up is named rather than called damage.
const char* other_file(std::int32_t magic) {
  switch (magic) {
    case 20240326: return "a model";
    case 20240328: return "a tokenizer";
    case 20240522: return "an evaluation set";
    case 20240527: return "an optimizer state";
    default: return nullptr;
  }
}

template <class... Parts>
[[noreturn]] void fail(const std::string& name, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, name, ": ", parts...);
}

const Kind& kind_of(const std::string& name, std::int32_t magic) {
  for (const Kind& kind : kinds)
    if (kind.magic == magic) return kind;
  if (const char* other = other_file(magic))
    fail(name, "is ", other, " of llm.c, not tokens; give a token file");
  fail(name, "begins with ", magic,
       ", not with the 20240520 or 20240801 of an llm.c token file; give a token file, "
       "or for a Megatron set the .bin with its .idx beside it");
}

}  // namespace

LlmcHeader parse_llmc_header(const std::string& name, std::span<const std::byte> file) {
  if (file.size() < llmc_header_bytes)
    fail(name, "has ", file.size(), " bytes, the header of an llm.c token file alone has ", llmc_header_bytes,
         "; the file is cut off or of another kind");
  const Kind& kind = kind_of(name, load<std::int32_t>(file.data()));
  const auto version = load<std::int32_t>(file.data() + 4);
  if (version != kind.version)
    fail(name, "is of version ", version, ", magic ", kind.magic, " goes with version ", kind.version,
         "; write it anew with llm.c's data scripts");
  const auto count = load<std::int32_t>(file.data() + 8);
  if (count <= 0)
    fail(name, "says it holds ", count, " tokens; a shard holds 1 to 2147483647: write it anew");
  const auto tokens = static_cast<std::uint64_t>(count);
  const std::uint64_t expected = llmc_header_bytes + tokens * size_of(kind.type);
  if (file.size() != expected)
    fail(name, "says ", count, " tokens, which makes ", expected, " bytes, but it has ", file.size(),
         "; the file is cut off or damaged: copy or write it anew");
  return {kind.type, tokens};
}

}  // namespace prun::tokens
