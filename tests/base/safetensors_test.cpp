// Safetensors: files that break each rule once, a file of the reference writer byte for byte, round trips,
// damage at random, and failures while writing.
#include "base/safetensors.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace prun::safetensors_test {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string little_endian(std::uint64_t number) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(number >> shift & 0xff);
  return out;
}

// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data = 0) {
  return little_endian(header.size()) + header + std::string(data, 'd');
}

// A file with one tensor "t" of 16 bytes whose entry is given.
std::string entry_of(const std::string& entry, std::size_t data = 16) {
  return file_of("{\"t\":" + entry + "}", data);
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::size_t data = 16) {
  return entry_of(R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}",
                  data);
}

// Two tensors "a" and "b" of bytes.
std::string two(const std::string& size_a, const std::string& a, const std::string& size_b,
                const std::string& b, std::size_t data = 16) {
  return file_of(R"({"a":{"dtype":"U8","shape":[)" + size_a + R"(],"data_offsets":)" + a +
                     R"(},"b":{"dtype":"U8","shape":[)" + size_b + R"(],"data_offsets":)" + b + "}}",
                 data);
}

const std::string good_entry = R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})";

struct BrokenFile {
  int rule;  // as numbered in safetensors.cpp
  std::string file;
  std::string reason;              // part of the message
  bool reference_accepts = false;  // where prun is stricter than the reference reader 0.8.0
};

std::vector<BrokenFile> broken_lengths() {
  const std::string good = entry_of(good_entry);
  return {
      {1, "", "0 bytes"},
      {1, good.substr(0, 7), "7 bytes"},
      {1, little_endian(0) + "{}", "does not start with '{'"},
      {1, little_endian(3) + "{}", "header length 3 goes beyond the end"},
      {1, little_endian(100'000'001) + "{}", "above the limit"},
      {1, little_endian(~std::uint64_t{0}) + "{}", "above the limit"},
      {1, little_endian(~std::uint64_t{0} - 7) + "{}", "above the limit"},
      {1, good.substr(0, 30), "goes beyond the end"},
  };
}

std::vector<BrokenFile> broken_headers() {
  return {
      {2, file_of("[]"), "does not start with '{'"},
      {2, file_of(" {}"), "does not start with '{'", true},
      {2, file_of("{}\n"), "does not end in '}' and spaces", true},
      {2, file_of(std::string("{}\0", 3)), "does not end in '}' and spaces"},
      {2, file_of("{\"t\":" + good_entry, 16), "header: byte"},
      {2, file_of("{} {}"), "expected end of input"},
      {2, file_of("{\"t\xff\":" + good_entry + "}", 16), "ill-formed UTF-8"},
      {2, file_of("{\"t\":" + std::string(100'000, '[') + "}"), "nested deeper"},
      {3, entry_of("5"), "tensor 't': its entry is not an object"},
      {3, entry_of(R"({"shape":[16],"data_offsets":[0,16]})"), "it has no dtype"},
      {3, entry_of(R"({"dtype":"U8","data_offsets":[0,16]})"), "it has no shape"},
      {3, entry_of(R"({"dtype":"U8","shape":[16]})"), "it has no data_offsets"},
      {3, entry_of(R"({"dtype":5,"shape":[16],"data_offsets":[0,16]})"), "dtype is not a string"},
      {3, one("U8", "16", "[0,16]"), "shape is not an array"},
      {3, one("U8", "[-16]", "[0,16]"), "shape holds something else"},
      {3, one("U8", "[16.0]", "[0,16]"), "shape holds something else"},
      {3, one("U8", "[\"16\"]", "[0,16]"), "shape holds something else"},
      {3, one("U8", "[0,18446744073709551615]", "[0,0]", 0), "shape holds something else", true},
      {3, one("U8", "[18446744073709551616]", "[0,16]"), "shape holds something else"},
      {3, one("U8", "[16]", "{}"), "data_offsets is not an array of two"},
      {3, one("U8", "[16]", "[0]"), "data_offsets is not an array of two"},
      {3, one("U8", "[16]", "[0,16,16]"), "data_offsets is not an array of two"},
      {3, one("U8", "[16]", "[-0,16]"), "data_offsets holds something else"},
      {3, one("U8", "[16]", "[0,1.6e1]"), "data_offsets holds something else"},
      {3, file_of(R"({"__metadata__":["pt"]})"), "__metadata__ is not an object"},
      {3, file_of(R"({"__metadata__":null})"), "__metadata__ is not an object", true},
      {3, file_of(R"({"__metadata__":{"step":5}})"), "__metadata__ 'step' is not a string"},
  };
}

std::vector<BrokenFile> broken_layouts() {
  return {
      {4, one("U8", "[16]", "[16,0]"), "end before they begin"},
      {4, one("U8", "[16]", "[4,20]", 20), "should begin at 0, where the tensor before ends (hole)"},
      {4, two("8", "[0,8]", "9", "[7,16]"), "tensor 'b': data_offsets [7, 16) should begin at 8"},
      {4, two("16", "[0,16]", "16", "[0,16]"), "overlap"},
      {4, two("4", "[0,4]", "8", "[8,16]"), "hole"},
      {5, one("F32", "[2,3]", "[0,16]"),
       "shape [2,3] of F32 needs 24 bytes, but data_offsets [0, 16) hold 16"},
      {5, one("F32", "[]", "[0,16]"), "needs 4 bytes"},
      {5, one("U8", "[0]", "[0,16]"), "needs 0 bytes"},
      {5, one("U8", "[4294967296,4294967296,16]", "[0,16]"), "more than 2^64 bits"},
      {5, one("F64", "[4611686018427387904]", "[0,16]"), "more than 2^64 bits"},
      {5, one("U8", "[9223372036854775807,4,0]", "[0,0]", 0), "more than 2^64 bits"},
      {5, one("F4", "[3]", "[0,1]", 1), "does not fill whole bytes"},
      {5, one("F6_E2M3", "[2]", "[0,1]", 1), "does not fill whole bytes"},
      {6, one("U8", "[16]", "[0,16]", 15), "go beyond the 15 bytes of data"},
      {6, one("U8", "[16]", "[0,16]", 17), "the tensors fill 16 of 17 bytes"},
      {6, file_of("{}", 1), "the tensors fill 0 of 1 bytes"},
      {6, one("U8", "[1152921504606846976]", "[0,1152921504606846976]"), "go beyond"},
      {7, one("F33", "[4]", "[0,16]"), "unknown dtype 'F33'"},
      {7, one("f32", "[4]", "[0,16]"), "unknown dtype 'f32'"},
      {7, one("", "[4]", "[0,16]"), "unknown dtype ''"},
      {9, file_of("{\"t\":" + good_entry + ",\"t\":" + good_entry + "}", 16), "duplicate name", true},
      {9, entry_of(R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "duplicate name"},
      {9, file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "duplicate name", true},
      {9, file_of(R"({"__metadata__":{},"__metadata__":{}})"), "duplicate name"},
  };
}

std::vector<BrokenFile> broken_files() {
  std::vector<BrokenFile> all;
  for (const auto& part : {broken_lengths(), broken_headers(), broken_layouts()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    std::string pattern = (fs::temp_directory_path() / "prun-safetensors-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw_storage_error("create", pattern, errno);
    folder_ = pattern;
  }
  ~SafetensorsTest() override { fs::remove_all(folder_); }

  fs::path path() const { return folder_ / "model.safetensors"; }

  void put(const std::string& content) const { std::ofstream(path(), std::ios::binary) << content; }

  std::string content() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

// ---- Reader ----

TEST_F(SafetensorsTest, RefusesEachBrokenFileWithTheReason) {
  const std::vector<BrokenFile> cases = broken_files();
  EXPECT_GE(cases.size(), 40u);
  for (const BrokenFile& broken : cases) {
    put(broken.file);
    std::string message = "accepted";
    try {
      const SafetensorsFile file(path());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      message = error.what();
    }
    EXPECT_NE(message.find(broken.reason), std::string::npos)
        << "rule " << broken.rule << ", wanted: " << broken.reason << "\ngot: " << message.substr(0, 300);
    EXPECT_EQ(message.find(path().string()), 0u) << "the message does not name the file";
    EXPECT_LT(message.size(), 600u);
  }
}

TEST_F(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  const std::string extra = R"({"dtype":"U8","shape":[16],"data_offsets":[0,16],"note":{"any":[1]}})";
  const std::string files[] = {
      file_of("{}"),
      file_of("{}      "),
      file_of(R"({"__metadata__":{}})"),
      file_of(R"({ "__metadata__" : {"format":"pt","note":"\u00e9"} , "t":)" + good_entry + "}   ", 16),
      entry_of(extra),
      one("F64", "[]", "[0,8]", 8),
      one("F32", "[0]", "[0,0]", 0),
      one("F32", "[3,0,5]", "[0,0]", 0),
      one("F4", "[2,16]", "[0,16]"),
      one("F6_E3M2", "[4]", "[0,3]", 3),
      one("F8_E8M0", "[16]", "[0,16]"),
      one("C64", "[2]", "[0,16]"),
      two("8", "[8,16]", "8", "[0,8]"),
      two("0", "[8,8]", "8", "[0,8]", 8),
      two("0", "[0,0]", "0", "[0,0]", 0),
  };
  for (const std::string& file : files) {
    EXPECT_NO_THROW(read_safetensors_index(bytes_of(file), "file")) << file.substr(8);
  }
}

TEST_F(SafetensorsTest, KnowsTheSizeOfEachType) {
  const struct {
    const char* name;
    int bits;
  } types[] = {{"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"U16", 16},        {"I16", 16},
               {"U32", 32},    {"I32", 32},    {"U64", 64},        {"I64", 64},        {"F16", 16},
               {"BF16", 16},   {"F32", 32},    {"F64", 64},        {"C64", 64},        {"F8_E5M2", 8},
               {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
               {"F6_E3M2", 6}, {"F4", 4}};
  for (const auto& type : types) {
    const auto size = static_cast<std::size_t>(type.bits);  // of eight elements, in bytes
    const std::string file = one(type.name, "[8]", "[0," + std::to_string(size) + "]", size);
    const SafetensorsIndex index = read_safetensors_index(bytes_of(file), "file");
    EXPECT_EQ(name_of(index.entries()[0].type), type.name);
    EXPECT_EQ(bits_of(index.entries()[0].type), type.bits);
  }
  EXPECT_EQ(to_dtype(SafetensorsType::f16), DType::f16);
  for (const DType type :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::u16}) {
    EXPECT_EQ(to_dtype(to_safetensors_type(type)), type);
    EXPECT_EQ(bits_of(to_safetensors_type(type)), 8 * size_of(type));
  }
}

TEST_F(SafetensorsTest, ReportsFilesThatCannotBeOpened) {
  const auto code_of = [](const fs::path& path) {
    try {
      const SafetensorsFile file(path);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  EXPECT_EQ(code_of(path()), ErrorCode::storage);
  EXPECT_EQ(code_of(folder_), ErrorCode::bad_input);
  put(file_of("{}"));
  EXPECT_EQ(code_of(path()), ErrorCode::ok);
}

TEST_F(SafetensorsTest, NamesTheMissingTensorWithoutControlCharacters) {
  put(entry_of(good_entry));
  const SafetensorsFile file(path());
  EXPECT_EQ(file.bytes("t").size(), 16u);
  try {
    file.entry("none\x1b[2J");
    FAIL() << "a missing tensor was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_NE(std::string(error.what()).find("'none?[2J'"), std::string::npos) << error.what();
  }
}

TEST_F(SafetensorsTest, FindsEachOfManyTensors) {
  std::vector<SafetensorsSpec> specs;
  for (int i = 0; i < 500; ++i) specs.push_back({"h." + std::to_string(i), DType::u8, {1}});
  SafetensorsWriter writer(path(), specs);
  for (const SafetensorsSpec& spec : writer.order())
    writer.write(spec.name, bytes_of(spec.name.substr(2, 1)));
  writer.finish();
  SafetensorsFile moved(path());
  const SafetensorsFile file(std::move(moved));
  EXPECT_EQ(file.entries().size(), 500u);
  for (const SafetensorsSpec& spec : specs) EXPECT_EQ(text_of(file.bytes(spec.name)), spec.name.substr(2, 1));
}

// Every span of an accepted file lies inside, and together they fill the data.
void check_spans(const SafetensorsIndex& index, std::size_t size) {
  std::uint64_t last = size;
  for (const SafetensorsEntry& entry : index.entries()) {
    ASSERT_LE(entry.begin, entry.end);
    ASSERT_LE(entry.end, size);
    if (&entry != &index.entries().front()) {
      ASSERT_EQ(entry.begin, last);
    }
    last = entry.end;
  }
  ASSERT_EQ(last, size);
}

std::string damaged(std::string file, std::mt19937& random) {
  const std::size_t header_end = file.find("ddd");
  for (unsigned edits = 1 + random() % 4; edits > 0 && file.size() > 1; --edits) {
    const std::size_t at = random() % (random() % 4 == 0 ? file.size() : std::min(header_end, file.size()));
    switch (random() % 5) {
      case 0: file[at] = static_cast<char>(random()); break;
      case 1: file[at] = static_cast<char>(file[at] ^ (1 << random() % 8)); break;
      case 2: file[at] = static_cast<char>('0' + random() % 10); break;
      case 3: file.erase(at, 1 + random() % 8); break;
      default: file.insert(at, file.substr(random() % file.size(), 1 + random() % 8));
    }
  }
  return file;
}

TEST_F(SafetensorsTest, DamageNeverYieldsSpansOutside) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"c":{"dtype":"U8","shape":[0],"data_offsets":[22,22]}})";
  const std::string good = file_of(header, 22);
  check_spans(read_safetensors_index(bytes_of(good), "good"), good.size());
  std::mt19937 random(2024);
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < 10'000; ++trial) {
    std::string file = damaged(good, random);
    if (random() % 2 == 0 && file.size() > 30) {  // a right length lets the damage reach the other rules
      file.replace(0, 8, little_endian(file.size() - 30));
    }
    try {
      check_spans(read_safetensors_index(bytes_of(file), "damaged"), file.size());
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::bad_input);
      ++refused;
    }
  }
  EXPECT_EQ(accepted + refused, 10'000);
  EXPECT_GT(refused, 5'000);
  EXPECT_GT(accepted, 100);
}

TEST_F(SafetensorsTest, TruncationIsAlwaysRefused) {
  const std::string good = entry_of(good_entry);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(read_safetensors_index(bytes_of(good.substr(0, size)), "cut"), Error) << size;
  }
}

// ---- Writer ----

const std::vector<SafetensorsSpec> seven_tensors = {
    {"b", DType::u8, {3}}, {"a", DType::f32, {2, 2}}, {"h", DType::bf16, {2}},        {"i", DType::i64, {1}},
    {"j", DType::i32, {}}, {"d", DType::f64, {0}},    {"A\"\u00e9", DType::f32, {1}},
};

TEST_F(SafetensorsTest, WritesTheSameBytesAsTheReferenceWriter) {
  // What safetensors 0.8.0 (Python) writes for the same tensors.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("d":{"dtype":"F64","shape":[0],"data_offsets":[8,8]},"A\"é":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[12,28]},"j":{"dtype":"I32","shape":[],"data_offsets":[28,32]},)"
      R"("h":{"dtype":"BF16","shape":[2],"data_offsets":[32,36]},"b":{"dtype":"U8","shape":[3],"data_offsets":[36,39]}}       )";
  ASSERT_EQ(header.size(), 0x1a8u);
  SafetensorsWriter writer(path(), seven_tensors);
  for (const SafetensorsSpec& spec : writer.order()) {
    if (spec.name == "b")
      writer.write("b", bytes_of("abc"));
    else if (spec.name != "d") {
      std::int64_t size = size_of(spec.type);
      for (const std::int64_t extent : spec.shape) size *= extent;
      writer.write(spec.name, bytes_of(std::string(static_cast<std::size_t>(size), '\0')));
    }
  }
  writer.finish();
  EXPECT_EQ(content(), little_endian(header.size()) + header + std::string(36, '\0') + "abc");
}

TEST_F(SafetensorsTest, RoundTripKeepsEverything) {
  const SafetensorsMetadata metadata = {{"prun.step", "100"}, {"note", "\u00e9\n\"quoted\""}};
  std::mt19937 random(5);
  std::map<std::string, std::string> data;
  SafetensorsWriter writer(path(), seven_tensors, metadata);
  for (const SafetensorsSpec& spec : writer.order()) {
    std::int64_t size = size_of(spec.type);
    for (const std::int64_t extent : spec.shape) size *= extent;
    std::string& bytes = data[spec.name];
    for (std::int64_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(random()));
    for (std::size_t at = 0; at < bytes.size(); at += 3)
      writer.write(spec.name, bytes_of(bytes.substr(at, 3)));
  }
  EXPECT_FALSE(fs::exists(path()));
  writer.finish();

  const SafetensorsFile file(path());
  EXPECT_EQ(file.entries().size(), seven_tensors.size());
  for (const SafetensorsSpec& spec : seven_tensors) {
    const SafetensorsEntry& entry = file.entry(spec.name);
    EXPECT_EQ(to_dtype(entry.type), spec.type);
    EXPECT_EQ(entry.shape, spec.shape);
    EXPECT_EQ(text_of(file.bytes(entry)), data[spec.name]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.bytes(entry).data()) %
                  static_cast<std::uintptr_t>(size_of(spec.type)),
              0u)
        << spec.name;
  }
  SafetensorsMetadata expected = metadata;
  expected["format"] = "pt";
  EXPECT_EQ(file.index().metadata(), expected);
}

TEST_F(SafetensorsTest, WritesAFileWithoutTensors) {
  SafetensorsWriter(path(), {}, {{"k", "v"}}).finish();
  EXPECT_EQ(SafetensorsFile(path()).index().metadata().at("k"), "v");
  EXPECT_EQ(content().size() % 8, 0u);
}

TEST_F(SafetensorsTest, RefusesSpecsThatCannotBeWritten) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const std::vector<SafetensorsSpec> bad[] = {
      {{"a", DType::f32, {1}}, {"a", DType::f64, {1}}},
      {{"__metadata__", DType::f32, {1}}},
      {{"a", DType::f32, {-1}}},
      {{"a", DType::f32, {huge, 8}}},
      {{"a", DType::u8, {huge}}},
      {{"\xff", DType::u8, {1}}},
  };
  for (const auto& specs : bad) EXPECT_THROW(SafetensorsWriter(path(), specs), Error) << specs[0].name;
  std::vector<SafetensorsSpec> sum;
  for (int i = 0; i < 8; ++i) sum.push_back({std::to_string(i), DType::u8, {std::int64_t{1} << 60}});
  EXPECT_THROW(SafetensorsWriter(path(), sum), Error);
  EXPECT_THROW(SafetensorsWriter(path(), {}, {{"format", "np"}}), Error);
  EXPECT_THROW(SafetensorsWriter(path(), {}, {{"note", "\xff"}}), Error);
  EXPECT_THROW(SafetensorsWriter(path(), {}, {{"note", std::string(100'000'000, 'x')}}), Error);
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(SafetensorsTest, RefusesBytesThatDoNotFit) {
  const std::vector<SafetensorsSpec> specs = {
      {"a", DType::u8, {2}}, {"b", DType::u8, {2}}, {"z", DType::u8, {0}}};
  SafetensorsWriter writer(path(), specs);
  EXPECT_THROW(writer.write("b", bytes_of("xx")), Error);  // "a" comes first
  EXPECT_THROW(writer.write("a", bytes_of("xxx")), Error);
  writer.write("a", bytes_of("x"));
  EXPECT_THROW(writer.write("a", bytes_of("xx")), Error);
  writer.write("a", bytes_of("y"));
  EXPECT_THROW(writer.finish(), Error);  // "b" is missing
  writer.write("b", bytes_of("zz"));
  EXPECT_THROW(writer.write("b", bytes_of("z")), Error);
  writer.finish();
  EXPECT_EQ(text_of(SafetensorsFile(path()).bytes("a")), "xy");
}

TEST_F(SafetensorsTest, UnfinishedFileLeavesTheOldOne) {
  put("old");
  {
    SafetensorsWriter writer(path(), {{"a", DType::u8, {2}}});
    writer.write("a", bytes_of("x"));
  }
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(SafetensorsTest, FailedWriteLeavesTheOldFileAndSaysWhy) {
  put("old");
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit = {64 << 10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string message = "no error";
  ErrorCode code = ErrorCode::ok;
  try {
    SafetensorsWriter writer(path(), {{"a", DType::u8, {1 << 20}}});
    writer.write("a", bytes_of(std::string(1 << 20, 'x')));
    writer.finish();
  } catch (const Error& error) {
    message = error.what();
    code = error.code();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(code, ErrorCode::storage);
  EXPECT_NE(message.find(path().string() + "': File too large"), std::string::npos) << message;
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

// ---- Checksums ----

// Tensors of which one has three chunks of 4 MiB, one none; in pieces of odd sizes.
std::vector<SafetensorsSpec> large_tensors() {
  return {{"large", DType::f32, {(9 << 20) / 4}}, {"empty", DType::f32, {0}}, {"small", DType::u8, {77}}};
}

void write_with_checksums(const fs::path& path, std::size_t piece) {
  SafetensorsWriter writer(path, large_tensors(), {{"note", "\"prun.crc32c.data\":\"12345678"}},
                           Checksums::written);
  std::mt19937 random(3);
  for (const SafetensorsSpec& spec : writer.order()) {
    std::string bytes(static_cast<std::size_t>(spec.shape[0] * size_of(spec.type)), '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      writer.write(spec.name, bytes_of(bytes.substr(at, piece)));
  }
  writer.finish();
}

void check_all(const fs::path& path) {
  const SafetensorsFile file(path);
  for (const SafetensorsEntry& entry : file.entries()) file.check(entry);
}

TEST_F(SafetensorsTest, ChecksumsDoNotDependOnThePieces) {
  write_with_checksums(path(), std::size_t{64} << 20);
  const std::string whole = content();
  check_all(path());
  write_with_checksums(path(), 1'000'003);
  EXPECT_EQ(content(), whole);
  EXPECT_EQ(SafetensorsFile(path()).index().metadata().at("prun.crc32c.data").size(), 4 * 8u);
  put(entry_of(good_entry));
  EXPECT_FALSE(SafetensorsFile(path()).has_checksums());
}

// In any order, whole: the file is that of tensors one after the other.
TEST_F(SafetensorsTest, ChunksComeInAnyOrder) {
  const auto chunk = static_cast<std::size_t>(checksum_chunk_bytes);
  const std::vector<SafetensorsSpec> specs = {{"b", DType::u8, {static_cast<std::int64_t>(2 * chunk + 5)}},
                                              {"a", DType::u8, {7}},
                                              {"none", DType::u8, {0}}};
  std::vector<std::byte> bytes(2 * chunk + 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  const std::span<const std::byte> all(bytes);
  const fs::path row = folder_ / "row", mixed = folder_ / "mixed";
  SafetensorsWriter first(row, specs, {}, Checksums::written);
  first.write("a", all.first(7));
  first.write("b", all);
  first.finish();
  SafetensorsWriter second(mixed, specs, {}, Checksums::written);
  ASSERT_EQ(second.order()[1].name, "b");
  second.write_chunk(1, 2, all.subspan(2 * chunk));
  second.write_chunk(1, 0, all.first(chunk));
  EXPECT_THROW(second.finish(), Error);
  EXPECT_THROW(second.write_chunk(1, 0, all.first(chunk)), Error);
  EXPECT_THROW(second.write_chunk(1, 1, all.first(5)), Error);
  second.write_chunk(0, 0, all.first(7));
  second.write_chunk(1, 1, all.subspan(chunk, chunk));
  second.finish();
  const auto content = [](const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_TRUE(content(row) == content(mixed));
  const SafetensorsFile file(mixed);
  for (const SafetensorsEntry& entry : file.entries()) EXPECT_NO_THROW(file.check(entry));
}

TEST_F(SafetensorsTest, DamagedBytesAreNamedWithTheirTensor) {
  write_with_checksums(path(), std::size_t{64} << 20);
  const std::uint64_t at = SafetensorsFile(path()).entry("large").begin + (5 << 20);
  std::string damaged_file = content();
  damaged_file[at] = static_cast<char>(damaged_file[at] ^ 4);
  put(damaged_file);
  const SafetensorsFile file(path());
  EXPECT_NO_THROW(file.check(file.entry("small")));
  try {
    file.check(file.entry("large"));
    FAIL() << "damage was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    const std::uint64_t begin = file.entry("large").begin + (4 << 20);
    const std::string where = "tensor 'large': bytes " + std::to_string(begin) + " to " +
                              std::to_string(begin + (4 << 20) - 1) + " of the file";
    EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
  }
}

TEST_F(SafetensorsTest, EveryDamagedByteOfAHeaderIsFound) {
  SafetensorsWriter writer(path(), {{"a", DType::u8, {3}}}, {{"k", "v"}}, Checksums::written);
  writer.write("a", bytes_of("abc"));
  writer.finish();
  const std::string good = content();
  std::mt19937 random(11);
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int trial = 0; trial < 8; ++trial) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 + random() % 255));
      put(bad);
      EXPECT_THROW(check_all(path()), Error) << "byte " << at;
    }
}

TEST_F(SafetensorsTest, PipesAndSocketsAreRefusedAtOnce) {
  const auto refused = [&] {
    try {
      const SafetensorsFile file(path());
      ADD_FAILURE() << "it was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("it is not a file"), std::string::npos) << error.what();
    }
    fs::remove(path());
  };
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  refused();
  fs::create_symlink("/dev/zero", path());
  refused();
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path().c_str());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  refused();
}

}  // namespace
}  // namespace prun::safetensors_test
