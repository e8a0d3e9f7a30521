// Broken .idx files and llm.c headers: each is refused with a message that says what is wrong.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "plugins/data/tokens/megatron_index.hpp"
#include "prun/error.hpp"
#include "token_files.hpp"

namespace prun::tokens {
namespace {

using test::as_bytes;
using test::IdxFile;
using test::LlmcFile;
using testing::TestWithParam;

constexpr std::uint64_t bin_bytes = 14;
constexpr std::int64_t i64_max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t i64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::uint64_t u64_max = std::numeric_limits<std::uint64_t>::max();
constexpr std::int32_t i32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t i32_min = std::numeric_limits<std::int32_t>::min();

struct BrokenIdx {
  const char* name;
  std::function<void(IdxFile&)> bend;
  const char* fragment;
};
void PrintTo(const BrokenIdx& broken, std::ostream* out) { *out << broken.name; }

class BrokenIdxTest : public TestWithParam<BrokenIdx> {};

TEST_P(BrokenIdxTest, IsRefusedWithAReason) {
  IdxFile idx;
  GetParam().bend(idx);
  const std::string file = idx.str();
  for (const std::uint64_t scan_limit : {std::uint64_t{0}, MegatronIndex::default_scan_limit}) {
    try {
      MegatronIndex index("set.idx", as_bytes(file), bin_bytes, scan_limit);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find(GetParam().fragment), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("set.idx: "), 0u) << error.what();
    }
  }
}

const BrokenIdx broken_indices[] = {
    {"magic", [](IdxFile& f) { f.magic[0] = 'X'; }, "does not begin with MMIDIDX"},
    {"magic_end", [](IdxFile& f) { f.magic[8] = 1; }, "does not begin with MMIDIDX"},
    {"legacy", [](IdxFile& f) { f.magic = std::string("TNTIDX\0\0\0", 9); }, "old TNTIDX format"},
    {"version_0", [](IdxFile& f) { f.version = 0; }, "is of version 0"},
    {"version_2", [](IdxFile& f) { f.version = 2; }, "is of version 2"},
    {"version_big_endian", [](IdxFile& f) { f.version = 1ull << 56; }, "is of version 72057594037927936"},
    {"type_0", [](IdxFile& f) { f.type = 0; }, "unknown token type code 0"},
    {"type_9", [](IdxFile& f) { f.type = 9; }, "unknown token type code 9"},
    {"type_255", [](IdxFile& f) { f.type = 255; }, "unknown token type code 255"},
    {"type_double", [](IdxFile& f) { f.type = 6; }, "floating-point values"},
    {"type_float", [](IdxFile& f) { f.type = 7; }, "floating-point values"},
    {"no_sequences", [](IdxFile& f) { f.sequences = 0; }, "has no sequences"},
    {"sequences_beyond_file", [](IdxFile& f) { f.sequences = 5; }, "says 5 sequences"},
    {"sequences_huge", [](IdxFile& f) { f.sequences = u64_max; }, "says 18446744073709551615 sequences"},
    {"sequences_wrap_times_12", [](IdxFile& f) { f.sequences = (1ull << 62) + 2; }, "hold at most 4"},
    {"sequences_wrap_to_1", [](IdxFile& f) { f.sequences = 0xAAAAAAAAAAAAAAABull; }, "hold at most 4"},
    {"one_more_sequence", [](IdxFile& f) { f.sequences = 3; }, "document bounds, but has room for 1"},
    {"one_less_sequence", [](IdxFile& f) { f.sequences = 1; }, "bytes after its arrays"},
    {"no_bounds", [](IdxFile& f) { f.bounds = 0; }, "has no document bounds"},
    {"bounds_beyond_file", [](IdxFile& f) { f.bounds = 4; }, "says 4 document bounds, but has room for 3"},
    {"bounds_huge", [](IdxFile& f) { f.bounds = u64_max; }, "has room for 3"},
    {"bounds_wrap_times_8", [](IdxFile& f) { f.bounds = (1ull << 61) + 3; }, "has room for 3"},
    {"one_less_bound", [](IdxFile& f) { f.bounds = 2; }, "has 8 bytes after its arrays"},
    {"tail_of_one", [](IdxFile& f) { f.tail = "x"; }, "has 1 bytes after its arrays"},
    {"tail_of_three", [](IdxFile& f) { f.tail = "xxx"; }, "expected 0 or one mode for each of 2"},
    {"array_cut_off", [](IdxFile& f) { f.documents.pop_back(); }, "room for 2"},
    {"first_document", [](IdxFile& f) { f.documents[0] = 1; }, "first document begins at sequence 1"},
    {"first_document_negative", [](IdxFile& f) { f.documents[0] = -1; }, "begins at sequence -1"},
    {"last_document_early", [](IdxFile& f) { f.documents[2] = 1; }, "ends at sequence 1 of 2"},
    {"last_document_late", [](IdxFile& f) { f.documents[2] = 3; }, "ends at sequence 3 of 2"},
    {"last_document_negative", [](IdxFile& f) { f.documents[2] = i64_min; }, "of 2"},
    {"length_negative", [](IdxFile& f) { f.lengths[0] = -1; }, "sequence 0 of 2 has the length -1"},
    {"length_lowest", [](IdxFile& f) { f.lengths[1] = i32_min; }, "has the length -2147483648"},
    {"length_beyond_bin", [](IdxFile& f) { f.lengths[1] = 5; },
     "(5 tokens from byte 6) lies outside the .bin"},
    {"length_highest", [](IdxFile& f) { f.lengths[0] = i32_max; }, "lies outside the .bin of 14 bytes"},
    {"offset_negative", [](IdxFile& f) { f.offsets[0] = -2; }, "from byte -2) lies outside"},
    {"offset_lowest", [](IdxFile& f) { f.offsets[1] = i64_min; }, "lies outside the .bin"},
    {"offset_highest", [](IdxFile& f) { f.offsets[1] = i64_max; }, "lies outside the .bin"},
    {"offset_wraps_with_length", [](IdxFile& f) { f.offsets[1] = -6; }, "from byte -6) lies outside"},
    {"offset_beyond_bin", [](IdxFile& f) { f.offsets[1] = 16; }, "from byte 16) lies outside"},
    {"offset_within_token", [](IdxFile& f) { f.offsets[1] = 5; },
     "begins at byte 5, inside a token of 2 bytes"},
    {"bin_longer", [](IdxFile& f) { f.lengths[1] = 3; }, "end at byte 12, the .bin has 14"},
    {"bin_longer_u8", [](IdxFile& f) { f.type = 1, f.offsets[1] = 3; }, "end at byte 7, the .bin has 14"},
    {"all_empty",
     [](IdxFile& f) {
       f.lengths = {0, 0};
     },
     "2 sequences hold no token"},
};

std::string idx_name(const testing::TestParamInfo<BrokenIdx>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Idx, BrokenIdxTest, testing::ValuesIn(broken_indices), idx_name);

TEST(IdxHeader, EveryCutOfARightFileIsRefused) {
  const std::string file = IdxFile{}.str();
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_THROW(parse_megatron_header("set.idx", as_bytes(file).first(size)), Error) << size;
  EXPECT_NO_THROW(parse_megatron_header("set.idx", as_bytes(file)));
}

TEST(IdxHeader, ModesAtTheEndAreAllowed) {
  IdxFile idx;
  idx.tail = std::string(2, '\1');
  const std::string file = idx.str();
  const MegatronIndex index("set.idx", as_bytes(file), bin_bytes);
  EXPECT_EQ(index.tokens(), 7u);
  EXPECT_EQ(index.extents().size(), 1u);
}

TEST(IdxHeader, AnEmptySetIsRefusedHoweverMuchIsScanned) {
  IdxFile idx;
  idx.lengths = {0, 0}, idx.offsets = {0, 0};
  const std::string file = idx.str();
  for (const std::uint64_t scan_limit : {std::uint64_t{0}, MegatronIndex::default_scan_limit})
    EXPECT_NE(test::message_of([&] {
                MegatronIndex("set.idx", as_bytes(file), 0, scan_limit);
              }).find("hold no token"),
              std::string::npos);
}

struct BrokenLlmc {
  const char* name;
  std::function<void(LlmcFile&)> bend;
  const char* fragment;
};
void PrintTo(const BrokenLlmc& broken, std::ostream* out) { *out << broken.name; }

class BrokenLlmcTest : public TestWithParam<BrokenLlmc> {};

TEST_P(BrokenLlmcTest, IsRefusedWithAReason) {
  LlmcFile shard = test::shard_of({1, 2, 3});
  GetParam().bend(shard);
  const std::string file = shard.str();
  try {
    parse_llmc_header("set.bin", as_bytes(file));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what()).find(GetParam().fragment), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("set.bin: "), 0u) << error.what();
  }
}

const BrokenLlmc broken_shards[] = {
    {"magic_0", [](LlmcFile& f) { f.magic = 0; }, "begins with 0, not with the 20240520"},
    {"magic_negative", [](LlmcFile& f) { f.magic = -1; }, "begins with -1"},
    {"magic_big_endian", [](LlmcFile& f) { f.magic = 0x08DB3401; }, "not with the 20240520"},
    {"model", [](LlmcFile& f) { f.magic = 20240326; }, "is a model of llm.c"},
    {"tokenizer", [](LlmcFile& f) { f.magic = 20240328; }, "is a tokenizer of llm.c"},
    {"evaluation", [](LlmcFile& f) { f.magic = 20240522; }, "is an evaluation set"},
    {"state", [](LlmcFile& f) { f.magic = 20240527; }, "is an optimizer state"},
    {"version_0", [](LlmcFile& f) { f.version = 0; }, "is of version 0"},
    {"version_of_the_other", [](LlmcFile& f) { f.version = 7; }, "is of version 7, magic 20240520"},
    {"llama_version", [](LlmcFile& f) { f.magic = 20240801; }, "magic 20240801 goes with version 7"},
    {"llama_size", [](LlmcFile& f) { f.magic = 20240801, f.version = 7; }, "which makes 1036 bytes"},
    {"count_0", [](LlmcFile& f) { f.count = 0, f.tokens = ""; }, "says it holds 0 tokens"},
    {"count_negative", [](LlmcFile& f) { f.count = -3; }, "says it holds -3 tokens"},
    {"count_lowest", [](LlmcFile& f) { f.count = i32_min; }, "says it holds -2147483648"},
    {"count_highest", [](LlmcFile& f) { f.count = i32_max; }, "makes 4294968318 bytes, but it has 1030"},
    {"count_small", [](LlmcFile& f) { f.count = 2; }, "makes 1028 bytes, but it has 1030"},
    {"cut_off", [](LlmcFile& f) { f.tokens.pop_back(); }, "but it has 1029"},
    {"too_long", [](LlmcFile& f) { f.tokens += "xx"; }, "but it has 1032"},
    {"no_tokens", [](LlmcFile& f) { f.tokens = ""; }, "but it has 1024"},
};

std::string llmc_name(const testing::TestParamInfo<BrokenLlmc>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Llmc, BrokenLlmcTest, testing::ValuesIn(broken_shards), llmc_name);

TEST(LlmcHeader, ShorterThanAHeader) {
  const std::string file = test::shard_of({1}).str();
  for (const std::size_t size : {0u, 4u, 1023u})
    EXPECT_NE(test::message_of([&] {
                parse_llmc_header("a.bin", as_bytes(file).first(size));
              }).find("the header of an llm.c token file alone has 1024"),
              std::string::npos);
}

TEST(LlmcHeader, LlamaTokensHaveFourBytes) {
  const std::string file = LlmcFile{20240801, 7, 2, test::bytes_of<std::uint32_t>({128000, 5})}.str();
  const LlmcHeader header = parse_llmc_header("a.bin", as_bytes(file));
  EXPECT_EQ(header.type, TokenType::u32);
  EXPECT_EQ(header.tokens, 2u);
}

}  // namespace
}  // namespace prun::tokens
