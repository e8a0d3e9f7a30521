// Finds the pieces under a window and widens their tokens to i32.
#include "token_stream.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "mmap_file.hpp"
#include "prun/error.hpp"

namespace prun::tokens {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

constexpr std::int64_t largest_token = std::numeric_limits<std::int32_t>::max();

// Returns the last piece that begins at or before the position.
template <class Piece>
typename std::vector<Piece>::const_iterator piece_at(const std::vector<Piece>& pieces,
                                                     std::uint64_t position) {
  return std::prev(
      std::upper_bound(pieces.begin(), pieces.end(), position,
                       [](std::uint64_t value, const Piece& piece) { return value < piece.first; }));
}

}  // namespace

void TokenStream::append(const std::string& file, std::span<const std::byte> bytes, std::uint64_t offset,
                         std::uint64_t count) {
  PRUN_CHECK(offset <= bytes.size() && count <= (bytes.size() - offset) / size_of(type_), file, ": ", count,
             " tokens from byte ", offset, " of ", bytes.size());
  if (count == 0) return;
  if (files_.empty() || files_.back().data != bytes.data()) files_.push_back({tokens_, file, bytes.data()});
  stretches_.push_back({tokens_, bytes.data() + offset});
  tokens_ += count;
}

void TokenStream::read(std::uint64_t first, std::uint64_t count, std::int32_t* out) const {
  PRUN_CHECK(first <= tokens_ && count <= tokens_ - first, "tokens ", first, " + ", count, " of ", tokens_);
  if (count == 0) return;
  for (auto stretch = piece_at(stretches_, first); count > 0; ++stretch) {
    const auto next = std::next(stretch);
    const std::uint64_t end = next == stretches_.end() ? tokens_ : next->first;
    const std::uint64_t taken = std::min(count, end - first);
    const std::byte* from = stretch->data + (first - stretch->first) * size_of(type_);
    expect_read({from, taken * size_of(type_)});
    decode(from, first, taken, out);
    first += taken;
    count -= taken;
    out += taken;
  }
}

std::size_t TokenStream::file_of(std::uint64_t token) const {
  return static_cast<std::size_t>(piece_at(files_, token) - files_.begin());
}

void TokenStream::decode(const std::byte* from, std::uint64_t first, std::uint64_t count,
                         std::int32_t* out) const {
  switch (type_) {
    case TokenType::u8: return decode_as<std::uint8_t>(from, first, count, out);
    case TokenType::i8: return decode_as<std::int8_t>(from, first, count, out);
    case TokenType::i16: return decode_as<std::int16_t>(from, first, count, out);
    case TokenType::u16: return decode_as<std::uint16_t>(from, first, count, out);
    case TokenType::i32: return decode_as<std::int32_t>(from, first, count, out);
    case TokenType::u32: return decode_as<std::uint32_t>(from, first, count, out);
    case TokenType::i64: return decode_as<std::int64_t>(from, first, count, out);
  }
}

template <class T>
void TokenStream::decode_as(const std::byte* from, std::uint64_t first, std::uint64_t count,
                            std::int32_t* out) const {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::byte* at = from + i * sizeof(T);
    const T value = load<T>(at);
    if constexpr (std::is_signed_v<T> || sizeof(T) >= 4) {
      const auto wide = static_cast<std::int64_t>(value);
      if (wide < 0 || wide > largest_token) [[unlikely]]
        reject(at, first + i, std::to_string(value));
    }
    out[i] = static_cast<std::int32_t>(value);
  }
}

void TokenStream::reject(const std::byte* at, std::uint64_t position, const std::string& value) const {
  const File& file = *piece_at(files_, position);
  throw_error(ErrorCode::bad_input, file.name, ": the token at byte ", at - file.data, " (token ", position,
              " of the set) is ", value, ", not within 0 and ", largest_token,
              "; the file is damaged or of another token type: write it anew");
}

}  // namespace prun::tokens
