// Token sets end to end: what windows hold, which files a path means, and what opening costs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <functional>
#include <numeric>
#include <random>

#include "plugins/data/tokens/tokens_data.hpp"
#include "tests/support/fake_options.hpp"
#include "tests/support/temp_folder.hpp"
#include "token_files.hpp"

namespace prun::tokens {
namespace {

using test::as_bytes;
using test::bytes_of;
using test::IdxFile;
using test::message_of;
using test::TempFolder;
using Tokens = std::vector<std::int32_t>;

TokensData data_of(const std::string& path, const char* format = "auto", const char* index = "auto") {
  test::FakeOptions options{{"path", path}, {"format", format}, {"index", index}};
  return TokensData(options.options());
}

struct Sample {
  Tokens tokens, targets;
};

Sample sample_of(TokensData& data, std::int64_t seq, std::int64_t index) {
  Sample sample{Tokens(static_cast<std::size_t>(seq), -7), Tokens(static_cast<std::size_t>(seq), -7)};
  data.read(index, sample.tokens.data(), sample.targets.data());
  return sample;
}

template <class T>
std::vector<T> counting(std::size_t count, T first = 0) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Every sample of the set, checked against the stream it should be cut from.
void expect_stream(TokensData& data, std::int64_t seq, const Tokens& stream) {
  const DataInfo info = data.open(seq);
  const auto tokens = static_cast<std::int64_t>(stream.size());
  EXPECT_EQ(info.tokens, tokens);
  EXPECT_EQ(info.samples, (tokens - 1) / seq);
  EXPECT_EQ(info.vocab, 0);
  for (std::int64_t i = 0; i < info.samples; ++i) {
    const Sample sample = sample_of(data, seq, i);
    const auto from = stream.begin() + i * seq;
    EXPECT_EQ(sample.tokens, Tokens(from, from + seq)) << "sample " << i;
    EXPECT_EQ(sample.targets, Tokens(from + 1, from + seq + 1)) << "sample " << i;
  }
}

void contains(const std::string& message, const std::string& fragment) {
  EXPECT_NE(message.find(fragment), std::string::npos) << message;
}

template <class T>
std::string write_set(const TempFolder& folder, const std::string& prefix, std::uint8_t type,
                      const std::vector<std::int32_t>& lengths, const std::vector<T>& tokens) {
  folder.write(prefix + ".bin", bytes_of(tokens));
  return folder.write(prefix + ".idx", test::index_of(type, sizeof(T), lengths).str());
}

TEST(TokensMegatron, WindowsCrossSequenceBorders) {
  const TempFolder folder;
  const std::string idx = write_set(folder, "set", 8, {3, 1, 0, 5, 2, 8}, counting<std::uint16_t>(19, 60000));
  for (const std::int64_t seq : {1, 2, 3, 4, 7, 9, 18}) {
    TokensData data = data_of(idx);
    expect_stream(data, seq, counting<std::int32_t>(19, 60000));
  }
}

template <class T>
void expect_type(std::uint8_t code, const std::vector<T>& tokens) {
  const TempFolder folder;
  const auto half = static_cast<std::int32_t>(tokens.size() / 2);
  const std::int32_t rest = static_cast<std::int32_t>(tokens.size()) - half;
  TokensData data = data_of(write_set(folder, "set", code, {half, rest}, tokens));
  expect_stream(data, 2, Tokens(tokens.begin(), tokens.end()));
}

TEST(TokensMegatron, EveryIntegerType) {
  expect_type<std::uint8_t>(1, {0, 1, 127, 128, 255});
  expect_type<std::int8_t>(2, {0, 1, 100, 126, 127});
  expect_type<std::int16_t>(3, {0, 1, 255, 32766, 32767});
  expect_type<std::int32_t>(4, {0, 70000, 128255, 2147483646, 2147483647});
  expect_type<std::int64_t>(5, {0, 70000, 128255, 2147483646, 2147483647});
  expect_type<std::uint16_t>(8, {0, 1, 50256, 65534, 65535});
}

TEST(TokensMegatron, OffsetsInAnyOrderAreFollowed) {
  const TempFolder folder;
  IdxFile idx;  // of the .bin 0..9: 6 7 8, then 2 3 4 5, then 0 1; the token 9 belongs to no sequence
  idx.sequences = 3, idx.bounds = 2, idx.documents = {0, 3};
  idx.lengths = {3, 4, 2}, idx.offsets = {12, 4, 0};
  folder.write("set.bin", bytes_of(counting<std::uint16_t>(10)));
  TokensData data = data_of(folder.write("set.idx", idx.str()));
  expect_stream(data, 2, {6, 7, 8, 2, 3, 4, 5, 0, 1});
}

TEST(TokensMegatron, SequencesInARowBecomeOneExtent) {
  const std::string row = test::index_of(8, 2, {3, 4, 0, 5}).str();
  EXPECT_EQ(MegatronIndex("a.idx", as_bytes(row), 24).extents().size(), 1u);
  IdxFile gap = test::index_of(8, 2, {3, 4, 5});
  gap.offsets[2] += 2;
  const std::string gapped = gap.str();
  EXPECT_EQ(MegatronIndex("a.idx", as_bytes(gapped), 26).extents().size(), 2u);
}

TEST(TokensMegatron, ATokenOutOfRangeNamesItsPlace) {
  const TempFolder folder;
  TokensData negative = data_of(write_set<std::int32_t>(folder, "negative", 4, {5}, {1, 2, 3, -4, 5}));
  negative.open(2);
  EXPECT_EQ(sample_of(negative, 2, 0).targets, (Tokens{2, 3}));
  const std::string message = message_of([&] { sample_of(negative, 2, 1); });
  contains(message, "negative.bin: the token at byte 12 (token 3 of the set) is -4");
  TokensData large = data_of(write_set<std::int64_t>(folder, "large", 5, {3}, {1, 2, 1ll << 31}));
  large.open(2);
  contains(message_of([&] { sample_of(large, 2, 0); }), "byte 16 (token 2 of the set) is 2147483648");
}

// 200,000 sequences of 2 tokens: more than the places that are checked at open.
class LargeIndex : public testing::Test {
 protected:
  static constexpr std::size_t sequences = 200'000;
  IdxFile idx_ = test::index_of(4, 4, std::vector<std::int32_t>(sequences, 2));
  std::uint64_t bin_bytes_ = sequences * 8;
};

TEST_F(LargeIndex, IsCheckedInPlacesAndUnderEachWindow) {
  std::swap(idx_.offsets[2000], idx_.offsets[2001]);
  const std::string file = idx_.str();
  const MegatronIndex index("set.idx", as_bytes(file), bin_bytes_, 1000);
  EXPECT_FALSE(index.fully_checked());
  EXPECT_EQ(index.tokens(), sequences * 2);
  EXPECT_NO_THROW(index.check_window(0, 3900));
  EXPECT_NO_THROW(index.check_window(4100, 10000));
  contains(message_of([&] { index.check_window(3900, 200); }), "does not follow the one before it");
  contains(message_of([&] { index.check_window(4001, 2); }), "index = \"full\"");
}

TEST_F(LargeIndex, IsReadInFullWhenAPlaceDoesNotFollow) {
  std::swap(idx_.offsets[10], idx_.offsets[11]);
  const std::string file = idx_.str();
  const MegatronIndex index("set.idx", as_bytes(file), bin_bytes_, 1000);
  EXPECT_TRUE(index.fully_checked());
  EXPECT_EQ(index.extents().size(), 4u);
}

TEST_F(LargeIndex, AcceptsWindowsOverEmptySequences) {
  idx_.lengths[2000] = 0, idx_.lengths[1999] = 4;
  idx_.offsets[2000] += 8;
  const std::string file = idx_.str();
  const MegatronIndex index("set.idx", as_bytes(file), bin_bytes_, 1000);
  EXPECT_FALSE(index.fully_checked());
  for (std::uint64_t first = 3990; first < 4010; ++first)
    EXPECT_NO_THROW(index.check_window(first, 5)) << first;
}

TEST_F(LargeIndex, ReadsWhenTheWindowEndsWithTheSet) {
  const std::string file = idx_.str();
  const MegatronIndex index("set.idx", as_bytes(file), bin_bytes_, 1000);
  EXPECT_NO_THROW(index.check_window(index.tokens() - 3, 3));
  EXPECT_THROW(index.check_window(index.tokens() - 3, 4), Error);
}

// What this process computed, its threads included: a busy machine does not count against it.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& call) {
  const double begin = cpu_seconds();
  call();
  return cpu_seconds() - begin;
}

#ifdef __SANITIZE_ADDRESS__
constexpr double scan_seconds = 5;  // every load is checked
#else
constexpr double scan_seconds = 0.5;
#endif

TEST(TokensOpening, TenMillionSequencesWellUnderASecond) {
  IdxFile idx;
  idx.sequences = 10'000'000, idx.bounds = 2, idx.documents = {0, 10'000'000};
  idx.lengths.assign(idx.sequences, 3);
  idx.offsets.resize(idx.sequences);
  for (std::size_t i = 0; i < idx.offsets.size(); ++i) idx.offsets[i] = static_cast<std::int64_t>(6 * i);
  const std::string file = idx.str();
  const double begin = cpu_seconds();
  const MegatronIndex index("set.idx", as_bytes(file), 60'000'000);
  const double seconds = cpu_seconds() - begin;
  EXPECT_TRUE(index.fully_checked());
  EXPECT_EQ(index.tokens(), 30'000'000u);
  RecordProperty("milliseconds", std::to_string(seconds * 1000));
  EXPECT_LT(seconds, scan_seconds);
}

// A file that claims its size but fills no disk. False where the file system cannot.
bool make_sparse(const std::string& path, off_t size) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const bool made = file >= 0 && ::ftruncate(file, size) == 0;
  if (file >= 0) ::close(file);
  return made;
}

TEST(TokensOpening, ATerabyteUnderATenthOfASecond) {
  const TempFolder folder;
  constexpr std::int32_t length = 1 << 29;
  const std::vector<std::int32_t> lengths(1024, length);  // times 2 bytes: 1 TiB
  if (!make_sparse(folder / "set.bin", off_t{1} << 40)) GTEST_SKIP() << "no sparse file of 1 TiB here";
  const std::string idx = folder.write("set.idx", test::index_of(8, 2, lengths).str());
  TokensData data = data_of(idx);
  DataInfo info;
  const double seconds = seconds_of([&] { info = data.open(1024); });
  RecordProperty("milliseconds", std::to_string(seconds * 1000));
  EXPECT_LT(seconds, 0.1);
  EXPECT_EQ(info.tokens, std::int64_t{1} << 39);
  EXPECT_EQ(sample_of(data, 1024, info.samples - 1).targets, Tokens(1024, 0));
}

// 1.2 GB of index, of which only the ends are written: every sequence is empty at byte 0, but the last.
std::string write_sparse_index(const TempFolder& folder, std::int64_t sequences, std::int32_t last_length) {
  IdxFile header;
  header.sequences = static_cast<std::uint64_t>(sequences), header.bounds = 2;
  header.lengths.clear(), header.offsets.clear(), header.documents.clear();
  const std::string path = folder.write("set.idx", header.str());
  if (!make_sparse(path, 34 + 12 * sequences + 16)) return "";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(34 + 4 * (sequences - 1)) << bytes_of<std::int32_t>({last_length});
  file.seekp(34 + 12 * sequences + 8) << bytes_of<std::int64_t>({sequences});
  return file.flush() ? path : "";
}

TEST(TokensOpening, AHundredMillionSequencesUnderATenthOfASecond) {
  const TempFolder folder;
  const std::string idx = write_sparse_index(folder, 100'000'000, 100);
  if (idx.empty()) GTEST_SKIP() << "no sparse file of 1.2 GB here";
  folder.write("set.bin", bytes_of(counting<std::uint16_t>(100)));
  TokensData data = data_of(idx);
  const double seconds = seconds_of([&] { EXPECT_EQ(data.open(10).tokens, 100); });
  RecordProperty("milliseconds", std::to_string(seconds * 1000));
  EXPECT_LT(seconds, 0.1);
  EXPECT_EQ(sample_of(data, 10, 8).tokens, counting<std::int32_t>(10, 80));
}

TEST(TokensLlmc, WindowsCrossShardBorders) {
  const TempFolder folder;
  folder.write("a_000002.bin", test::shard_of(counting<std::uint16_t>(4, 5)).str());
  folder.write("a_000001.bin", test::shard_of(counting<std::uint16_t>(5)).str());
  folder.write("a_000003.bin", test::shard_of(counting<std::uint16_t>(11, 9)).str());
  folder.write("notes.txt", "not a shard");
  for (const std::string& path :
       {folder.path(), folder / "a_*.bin", folder / "a_00000[1-3].bin", folder / "*"})
    for (const std::int64_t seq : {1, 2, 3, 7, 19}) {
      TokensData data = data_of(path);
      expect_stream(data, seq, counting<std::int32_t>(20));
    }
}

TEST(TokensLlmc, LlamaTokens) {
  const TempFolder folder;
  const test::LlmcFile shard{20240801, 7, 4, bytes_of<std::uint32_t>({1, 128000, 3, 0x80000000u})};
  TokensData data = data_of(folder.write("a.bin", shard.str()));
  EXPECT_EQ(data.open(1).tokens, 4);
  EXPECT_EQ(sample_of(data, 1, 0).targets, (Tokens{128000}));
  contains(message_of([&] { sample_of(data, 1, 2); }), "a.bin: the token at byte 1036 (token 3 of the set)");
}

TEST(TokensLlmc, ShardsOfTwoTokenSizesAreRefused) {
  const TempFolder folder;
  folder.write("a.bin", test::shard_of({1, 2}).str());
  folder.write("b.bin", test::LlmcFile{20240801, 7, 1, std::string(4, '\0')}.str());
  TokensData data = data_of(folder.path());
  contains(message_of([&] { data.open(1); }), "b.bin: has tokens of 4 bytes, the shards before it 2");
}

// By whole pages, and by less than one, where no signal tells.
TEST(TokensShrinking, AFileThatIsCutOffIsNamed) {
  for (const off_t size : {off_t{1024}, off_t{100'000}, off_t{1024 + 2 * 60'000 - 6}}) {
    const TempFolder folder;
    folder.write("a.bin", test::shard_of(counting<std::uint16_t>(60'000)).str());
    TokensData llmc = data_of(folder / "a.bin");
    const std::int64_t last = llmc.open(16).samples - 1;
    EXPECT_EQ(sample_of(llmc, 16, last).tokens,
              counting<std::int32_t>(16, static_cast<std::int32_t>(16 * last)));
    ASSERT_EQ(::truncate((folder / "a.bin").c_str(), size), 0);
    contains(message_of([&] { sample_of(llmc, 16, last); }), "a.bin: has shrunk from 121024 to ");
    contains(message_of([&] { sample_of(llmc, 16, last); }), "a.bin: has shrunk from 121024 to ");
  }
}

TEST(TokensShrinking, ThePartsOfASet) {
  for (const char* part : {"my.bin", "my.idx"}) {
    const TempFolder folder;
    write_set(folder, "my", 8, {60'000}, counting<std::uint16_t>(60'000));
    TokensData data = data_of(folder / "my");
    const std::int64_t last = data.open(16).samples - 1;
    ASSERT_EQ(::truncate((folder / part).c_str(), 40), 0);
    contains(message_of([&] { sample_of(data, 16, last); }), std::string(part) + ": has shrunk from ");
  }
}

TEST(TokensShrinking, AnotherFileUnderTheNameIsNoConcern) {
  const TempFolder folder;
  folder.write("a.bin", test::shard_of(counting<std::uint16_t>(6000)).str());
  folder.write("b.bin", "short");
  TokensData data = data_of(folder / "a.bin");
  data.open(16);
  std::filesystem::rename(folder / "b.bin", folder / "a.bin");
  EXPECT_EQ(sample_of(data, 16, 100).tokens, counting<std::int32_t>(16, 1600));
}

TEST(TokensPaths, EveryNameOfAMegatronSet) {
  const TempFolder folder;
  write_set(folder, "my.set", 8, {5}, counting<std::uint16_t>(5));
  for (const char* name : {"my.set", "my.set.bin", "my.set.idx"})
    for (const char* format : {"auto", "megatron"}) {
      TokensData data = data_of(folder / name, format);
      EXPECT_EQ(data.open(2).tokens, 5) << name << " as " << format;
    }
}

TEST(TokensPaths, WhatIsMissingOrUnclear) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& name, const char* format = "auto") {
    TokensData data = data_of(folder / name, format);
    return message_of([&] { data.open(1); });
  };
  contains(refusal("nothing"), "does not exist");
  contains(refusal("nothing*.bin"), "gives no .bin file");
  contains(refusal("nothing", "megatron"), "nothing.idx does not exist");
  folder.write("half.idx", IdxFile{}.str());
  contains(refusal("half.idx"), "half.bin does not exist");
  contains(refusal(""), "holds Megatron sets such as");
  folder.write("half/a.txt", "");
  contains(refusal("half"), "is a folder and also the prefix of a Megatron set");
  contains(refusal("half", "llmc"), "gives no .bin file");
  folder.write("empty.bin", "");
  contains(refusal("empty.bin"), "has 0 bytes");
}

TEST(TokensPaths, NoFileForTokens) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe.bin";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  TokensData data = data_of(pipe);
  contains(message_of([&] { data.open(1); }), "is not a regular file");
}

TEST(TokensPaths, TooFewTokensForASample) {
  const TempFolder folder;
  TokensData data = data_of(folder.write("a.bin", test::shard_of({1, 2, 3}).str()));
  contains(message_of([&] { data.open(3); }), "3 tokens are too few for one sample of 3 tokens");
}

TEST(TokensData, TwoReadersSeeTheSameInAnyOrder) {
  const TempFolder folder;
  std::vector<std::uint16_t> tokens(5000);
  std::mt19937 random(1);
  for (auto& token : tokens) token = static_cast<std::uint16_t>(random());
  const std::string idx = write_set(folder, "set", 8, {1000, 1, 3999}, tokens);
  TokensData up = data_of(idx), down = data_of(idx, "auto", "full");
  const std::int64_t samples = up.open(33).samples;
  ASSERT_EQ(down.open(33).samples, samples);
  std::vector<Sample> forward, backward;
  for (std::int64_t i = 0; i < samples; ++i) forward.push_back(sample_of(up, 33, i));
  for (std::int64_t i = samples; i-- > 0;) backward.push_back(sample_of(down, 33, i));
  for (std::size_t i = 0; i < forward.size(); ++i) {
    EXPECT_EQ(forward[i].tokens, backward[forward.size() - 1 - i].tokens);
    EXPECT_EQ(forward[i].targets, backward[forward.size() - 1 - i].targets);
  }
}

TEST(TokensData, ASampleThatIsNotThereIsABrokenPromise) {
  const TempFolder folder;
  TokensData data = data_of(folder.write("a.bin", test::shard_of({1, 2, 3}).str()));
  const std::int64_t samples = data.open(1).samples;
  EXPECT_EQ(samples, 2);
  EXPECT_THROW(sample_of(data, 1, 2), Error);
  EXPECT_THROW(sample_of(data, 1, -1), Error);
}

}  // namespace
}  // namespace prun::tokens
