// Every number of an index is hostile until compared with the sizes of the two files.
#include "megatron_index.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "prun/error.hpp"

namespace prun::tokens {
namespace {

// ------------------------------------------------------------------- megatron index

constexpr std::string_view index_magic("MMIDIDX\0\0", 9);
constexpr std::string_view legacy_magic("TNTIDX\0\0", 8);
constexpr std::uint64_t header_bytes = 34;
constexpr std::uint64_t sequence_bytes = 12;
constexpr std::uint64_t bound_bytes = 8;
constexpr std::uint64_t blocks = 64;
constexpr std::uint64_t block_sequences = 1024;
constexpr std::uint64_t most_tokens = std::numeric_limits<std::int64_t>::max();

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

template <class... Parts>
[[noreturn]] void fail(const std::string& name, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, name, ": ", parts...);
}

void check_magic(const std::string& name, std::span<const std::byte> index) {
  if (starts_with(index, legacy_magic))
    fail(name, "is an index of the old TNTIDX format; convert the set with Megatron's preprocessing tool");
  if (index.size() < header_bytes)
    fail(name, "has ", index.size(), " bytes, an index has at least ", header_bytes, "; write the set anew");
  if (!starts_with(index, index_magic))
    fail(name, "does not begin with MMIDIDX; give the .idx of a Megatron set");
  const auto version = load<std::uint64_t>(index.data() + 9);
  if (version != 1) fail(name, "is of version ", version, ", only 1 is known; write it with Megatron core");
}

TokenType type_of_code(const std::string& name, std::uint8_t code) {
  switch (code) {
    case 1: return TokenType::u8;
    case 2: return TokenType::i8;
    case 3: return TokenType::i16;
    case 4: return TokenType::i32;
    case 5: return TokenType::i64;
    case 6:
    case 7: fail(name, "holds floating-point values (type code ", int{code}, "); tokens are integers");
    case 8: return TokenType::u16;
    default:
      fail(name, "has the unknown token type code ", int{code}, "; the file is damaged: write it anew");
  }
}

void check_size(const std::string& name, const MegatronHeader& header, std::uint64_t size) {
  const std::uint64_t room = size - header_bytes;
  if (header.sequences == 0) fail(name, "has no sequences; tokenise some text into the set");
  if (header.sequences > room / sequence_bytes)
    fail(name, "says ", header.sequences, " sequences, but its ", size, " bytes hold at most ",
         room / sequence_bytes, "; the file is cut off or damaged: copy or write it anew");
  const std::uint64_t rest = room - header.sequences * sequence_bytes;
  if (header.bounds == 0) fail(name, "has no document bounds; the file is damaged: write it anew");
  if (header.bounds > rest / bound_bytes)
    fail(name, "says ", header.bounds, " document bounds, but has room for ", rest / bound_bytes,
         "; the file is cut off or damaged: copy or write it anew");
  const std::uint64_t left = rest - header.bounds * bound_bytes;
  if (left != 0 && left != header.sequences)
    fail(name, "has ", left, " bytes after its arrays, expected 0 or one mode for each of ", header.sequences,
         " sequences; the file is damaged: write it anew");
}

}  // namespace

MegatronHeader parse_megatron_header(const std::string& name, std::span<const std::byte> index) {
  check_magic(name, index);
  MegatronHeader header;
  header.type = type_of_code(name, load<std::uint8_t>(index.data() + 17));
  header.sequences = load<std::uint64_t>(index.data() + 18);
  header.bounds = load<std::uint64_t>(index.data() + 26);
  check_size(name, header, index.size());
  return header;
}

MegatronIndex::MegatronIndex(std::string name, std::span<const std::byte> index, std::uint64_t bin_bytes,
                             std::uint64_t scan_limit)
    : name_(std::move(name)),
      bin_bytes_(bin_bytes),
      header_(parse_megatron_header(name_, index)),
      token_bytes_(size_of(header_.type)) {
  lengths_ = index.data() + header_bytes;
  offsets_ = lengths_ + 4 * header_.sequences;
  bounds_ = offsets_ + 8 * header_.sequences;
  check_bounds();
  if (header_.sequences > scan_limit && bin_bytes_ > 0 && sampled_places_follow()) {
    tokens_ = bin_bytes_ / token_bytes_;
    extents_ = {{0, tokens_}};
    fully_checked_ = false;
  } else {
    scan();
  }
}

void MegatronIndex::check_bounds() const {
  const auto first = load<std::int64_t>(bounds_);
  const auto last = load<std::int64_t>(bounds_ + bound_bytes * (header_.bounds - 1));
  if (first != 0)
    fail(name_, "its first document begins at sequence ", first, ", not at 0; write the set anew");
  if (std::cmp_not_equal(last, header_.sequences))
    fail(name_, "its last document ends at sequence ", last, " of ", header_.sequences,
         "; write the set anew");
}

std::uint64_t MegatronIndex::offset_of(std::uint64_t sequence) const {
  return load<std::uint64_t>(offsets_ + 8 * sequence);
}

void MegatronIndex::reject(std::uint64_t sequence, const std::string& what) const {
  fail(name_, "sequence ", sequence, " of ", header_.sequences, " ", what,
       "; the .idx and .bin do not belong together or are damaged: write the set anew");
}

Extent MegatronIndex::sequence_at(std::uint64_t sequence) const {
  const auto length = load<std::int32_t>(lengths_ + 4 * sequence);
  const std::uint64_t offset = offset_of(sequence);
  const bool possible = length >= 0 && offset <= bin_bytes_ &&
                        static_cast<std::uint64_t>(length) * token_bytes_ <= bin_bytes_ - offset &&
                        (offset & (token_bytes_ - 1)) == 0;
  if (!possible) [[unlikely]]
    reject_place(sequence, length, offset);
  return {offset, static_cast<std::uint64_t>(length)};
}

void MegatronIndex::reject_place(std::uint64_t sequence, std::int32_t length, std::uint64_t offset) const {
  if (length < 0) reject(sequence, detail::concat("has the length ", length));
  if (offset <= bin_bytes_ && offset % token_bytes_ != 0)
    reject(sequence,
           detail::concat("begins at byte ", offset, ", inside a token of ", token_bytes_, " bytes"));
  reject(sequence, detail::concat("(", length, " tokens from byte ", static_cast<std::int64_t>(offset),
                                  ") lies outside the .bin of ", bin_bytes_, " bytes"));
}

bool MegatronIndex::sampled_places_follow() const {
  const std::uint64_t last = header_.sequences - 1;
  if (sequence_at(0).offset != 0 || end_of(sequence_at(last)) != bin_bytes_) return false;
  const std::uint64_t stride = std::max<std::uint64_t>(1, header_.sequences / blocks);
  for (std::uint64_t first = 0; first < last; first += stride)
    if (!block_follows(first, std::min(block_sequences, last - first))) return false;
  return true;
}

bool MegatronIndex::block_follows(std::uint64_t first, std::uint64_t count) const {
  for (std::uint64_t i = first; i < first + count; ++i)
    if (end_of(sequence_at(i)) != offset_of(i + 1)) return false;
  return true;
}

void MegatronIndex::scan() {
  for (std::uint64_t i = 0; i < header_.sequences; ++i) {
    const Extent sequence = sequence_at(i);
    if (sequence.tokens == 0) continue;
    if (sequence.tokens > most_tokens - tokens_) reject(i, "brings the set beyond 2^63 tokens");
    tokens_ += sequence.tokens;
    if (!extents_.empty() && end_of(extents_.back()) == sequence.offset)
      extents_.back().tokens += sequence.tokens;
    else
      extents_.push_back(sequence);
  }
  if (extents_.empty())
    fail(name_, "its ", header_.sequences, " sequences hold no token; tokenise some text");
  if (extents_.size() == 1 && extents_[0].offset == 0) check_filled(end_of(extents_[0]));
}

void MegatronIndex::check_filled(std::uint64_t end) const {
  if (end != bin_bytes_)
    fail(name_, "its sequences end at byte ", end, ", the .bin has ", bin_bytes_,
         " bytes; the two files do not belong together: write the set anew");
}

std::uint64_t MegatronIndex::last_starting_by(std::uint64_t byte) const {
  std::uint64_t low = 0;
  std::uint64_t high = header_.sequences;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (offset_of(middle) <= byte)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Between the ends of the window there must be sequences, one after the other. A break is an error here, not
// a reason to count anew: the numbers of all samples would change during a run.
void MegatronIndex::check_window(std::uint64_t first, std::uint64_t count) const {
  if (fully_checked_ || count == 0) return;
  PRUN_CHECK(first < tokens_ && count <= tokens_ - first, "tokens ", first, " + ", count, " of ", tokens_);
  const char* gap = "does not follow the one before it (with index = \"full\" any order is read as stated)";
  const std::uint64_t begin = first * token_bytes_;
  const std::uint64_t end = begin + count * token_bytes_;
  std::uint64_t sequence = last_starting_by(begin);
  Extent extent = sequence_at(sequence);
  if (extent.offset > begin || end_of(extent) <= begin) reject(sequence, gap);
  while (end_of(extent) < end) {
    const std::uint64_t reached = end_of(extent);
    if (++sequence == header_.sequences) reject(sequence - 1, gap);
    extent = sequence_at(sequence);
    if (extent.offset != reached) reject(sequence, gap);
  }
}

namespace {

// ------------------------------------------------------------------- llmc file
// Checks an llm.c header against the size of its file.

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
