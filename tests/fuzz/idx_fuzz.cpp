// A .idx from anyone: it is refused with an Error, or all that it leads to lies within the .bin.
//
// Input: u64 size of the .bin, u8 sequences checked in full, then the index.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "plugins/data/tokens/megatron_index.hpp"
#include "prun/error.hpp"

namespace {

using prun::tokens::Extent;
using prun::tokens::MegatronIndex;

constexpr std::uint64_t small_bin = 1 << 16;

void expect(bool promise) {
  if (!promise) std::abort();
}

void check_extents(const MegatronIndex& index, std::uint64_t bin_bytes) {
  std::uint64_t tokens = 0;
  for (const Extent& extent : index.extents()) {
    expect(extent.tokens > 0 && extent.offset <= bin_bytes);
    expect(extent.tokens <= (bin_bytes - extent.offset) / size_of(index.type()));
    tokens += extent.tokens;
  }
  expect(tokens == index.tokens());
}

void read_all(const MegatronIndex& index, std::uint64_t bin_bytes) {
  const std::vector<std::byte> bin(bin_bytes);
  prun::tokens::TokenStream stream(index.type());
  for (const Extent& extent : index.extents()) stream.append("fuzz.bin", bin, extent.offset, extent.tokens);
  const std::uint64_t window = std::min<std::uint64_t>(stream.tokens(), 100);
  std::vector<std::int32_t> tokens(window);
  for (std::uint64_t first = 0; first + window <= stream.tokens() && first < 1000; first += window) {
    index.check_window(first, window);
    stream.read(first, window, tokens.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 9) return 0;
  const std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  const auto bin_bytes = prun::tokens::load<std::uint64_t>(input.data());
  try {
    const MegatronIndex index("fuzz.idx", input.subspan(9), bin_bytes, data[8]);
    check_extents(index, bin_bytes);
    index.check_window(0, index.tokens());
    if (bin_bytes <= small_bin) read_all(index, bin_bytes);
  } catch (const prun::Error& error) {
    expect(error.code() == prun::ErrorCode::bad_input);
  }
  return 0;
}
