// The engine of the tier nvme, through a real ring on a real file system: what comes back is what was
// written, whatever goes wrong once; what goes wrong for good is told with drive, place and reason.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <random>

#include "faulty_ring.hpp"
#include "nvme/store.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

using namespace prun::nvme;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t mib = 1 << 20;

Bytes drawn(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Settings small(const TempFolder& folder, std::size_t drives = 1) {
  Settings settings;
  for (std::size_t i = 0; i < drives; ++i) {
    settings.folders.emplace_back(folder / ("drive" + std::to_string(i)));
    std::filesystem::create_directories(settings.folders.back());
  }
  settings.stripe = 64 << 10;
  settings.depth = 4;
  settings.checksum = true;
  settings.limit = std::chrono::seconds(2);
  return settings;
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Pieces of all sizes, at any place of memory, written one way and read another; what was tried again.
std::int64_t write_and_read_back(Store& store) {
  const Bytes all = drawn(static_cast<std::size_t>(store.bytes()), 3);
  const auto out = store.open_channel(), in = store.open_channel();
  Bytes copy = all;
  std::vector<MovedPiece> pieces;
  std::mt19937 random(5);
  for (std::int64_t at = 0; at < store.bytes();) {
    const std::int64_t most = std::int64_t{1} << (6 + random() % 13),
                       bytes = std::min<std::int64_t>(store.bytes() - at, 1 + random() % most);
    pieces.push_back({at, copy.data() + at, bytes});
    at += (bytes + block - 1) / block * block;
  }
  out->move(true, pieces);
  for (const MovedPiece& piece : pieces) std::fill_n(piece.memory, piece.bytes, std::byte{0});
  in->know(copy);
  std::shuffle(pieces.begin(), pieces.end(), random);
  in->move(false, pieces);
  EXPECT_TRUE(copy == all);
  return out->tried_again() + in->tried_again();
}

struct Kind {
  const char* name;
  MakeRing make;
};

class Stores : public testing::TestWithParam<std::tuple<Kind, std::string>> {
 protected:
  MakeRing ring() const {
    return with_faults(std::get<0>(GetParam()).make, faults_of(std::get<1>(GetParam())));
  }
};

TEST_P(Stores, GiveBackWhatTheyWereGiven) {
  const TempFolder folder;
  for (const std::size_t drives : {1u, 3u}) {
    Store store(small(folder, drives), 3 * mib + 4096, ring());
    const Fault fault = faults_of(std::get<1>(GetParam())).what;
    EXPECT_EQ(write_and_read_back(store) > 0, fault == Fault::error || fault == Fault::shortened);
  }
}

TEST_P(Stores, TakeBytesFromAnywhere) {
  const TempFolder folder;
  Store store(small(folder, 2), mib, ring());
  Bytes model(static_cast<std::size_t>(mib)), read(model.size());
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    const std::size_t at = random() % model.size(), count = 1 + random() % (model.size() - at);
    const Bytes fresh = drawn(std::min<std::size_t>(count, 20000), static_cast<unsigned>(i));
    std::copy(fresh.begin(), fresh.end(), model.begin() + static_cast<std::ptrdiff_t>(at));
    store.write(static_cast<std::int64_t>(at), fresh);
  }
  store.read(0, read);
  EXPECT_TRUE(read == model);
  store.read(777, std::span(read).subspan(777, 9000));
  EXPECT_TRUE(read == model);
  store.clear(100, 70000);
  std::fill_n(model.begin() + 100, 70000, std::byte{0});
  store.read(0, read);
  EXPECT_TRUE(read == model);
}

const Kind kinds[] = {{"uring", make_uring}, {"threads", make_thread_ring}};

INSTANTIATE_TEST_SUITE_P(Transient, Stores,
                         testing::Combine(testing::ValuesIn(kinds),
                                          testing::Values("", "eio", "enospc", "eintr", "eagain", "short",
                                                          "late", "reordered", "full")),
                         [](const auto& tested) {
                           const std::string fault = std::get<1>(tested.param);
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  (fault.empty() ? "none" : fault);
                         });

class ForGood : public testing::TestWithParam<const char*> {};

// Within the time that a transfer has, and with whatever is needed to find the drive.
TEST_P(ForGood, IsTold) {
  const TempFolder folder;
  Store store(small(folder, 2), 2 * mib, make_uring);
  Store broken(small(folder, 2), 2 * mib, make_uring);
  const auto channel = std::make_unique<Channel>(
      broken, with_faults(make_uring, faults_of(GetParam()))(
                  {broken.files()[0]->descriptor(), broken.files()[1]->descriptor()}, 8));
  Bytes bytes = drawn(static_cast<std::size_t>(2 * mib), 1);
  const MovedPiece piece{0, bytes.data(), 2 * mib};
  const auto begin = std::chrono::steady_clock::now();
  const std::string said = failure_of([&] { channel->move(true, {&piece, 1}); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_TRUE(said.starts_with("tier nvme: " + folder.path() + "/drive")) << said;
  EXPECT_NE(said.find(": writing 65536 bytes at "), std::string::npos) << said;
  const std::map<std::string, std::string> reasons = {{"eio!", "Input/output error (errno 5), tried 4 times"},
                                                      {"enospc!", "No space left on device (errno 28)"},
                                                      {"late!", "it has not ended within 2 s"},
                                                      {"full!", "it has not ended within 2 s"}};
  EXPECT_NE(said.find(reasons.at(GetParam())), std::string::npos) << said;
  write_and_read_back(store);
}

INSTANTIATE_TEST_SUITE_P(Faults, ForGood, testing::Values("eio!", "enospc!", "late!", "full!"),
                         [](const auto& tested) {
                           const std::string name = tested.param;
                           return name.substr(0, name.size() - 1);
                         });

// ---------------------------------------------------------------- checksums

TEST(Store, FindsEveryFlippedBit) {
  const TempFolder folder;
  Store store(small(folder, 2), 4 * mib, make_uring);
  Bytes bytes = drawn(static_cast<std::size_t>(4 * mib), 9);
  store.write(0, bytes);
  std::mt19937_64 random(13);
  Bytes read(static_cast<std::size_t>(block));
  int found = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::int64_t at =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(4 * mib / block)) * block;
    const Stretch place = store.stretch_at(at);
    const int file = store.files()[place.file]->descriptor();
    alignas(4096) std::byte whole[block];
    ASSERT_EQ(::pread(file, whole, block, place.offset), block);
    const std::uint64_t bit = random() % (8 * block);
    whole[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(::pwrite(file, whole, block, place.offset), block);
    const std::string said = failure_of([&] { store.read(at, read); });
    found +=
        said.find("its block at " + std::to_string(place.offset) + " is not as it was written") != said.npos;
    whole[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(::pwrite(file, whole, block, place.offset), block);
  }
  EXPECT_EQ(found, 10000);
  store.read(0, bytes);
}

// ---------------------------------------------------------------- files

TEST(Store, NeedsNoNameAndLeavesNothing) {
  const TempFolder folder;
  const Settings settings = small(folder);
  const pid_t child = ::fork();
  if (child == 0) {
    Store store(settings, mib, make_thread_ring);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::is_empty(settings.folders.front()));
}

TEST(Store, OutlivesItsFolder) {
  const TempFolder folder;
  const Settings settings = small(folder);
  Store store(settings, mib, make_uring);
  std::filesystem::remove_all(settings.folders.front());
  write_and_read_back(store);
}

TEST(Store, RefusesWhatDoesNotFit) {
  const TempFolder folder;
  Settings settings = small(folder);
  EXPECT_NE(failure_of([&] {
              Store(settings, std::int64_t{1} << 50, make_uring);
            }).find(" bytes left, this rank needs "),
            std::string::npos);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit less{static_cast<rlim_t>(mib), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  const std::string said = failure_of([&] { Store(settings, 2 * mib, make_uring); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(said.find("needs a file of 2097152 bytes, 1048576 are allowed here; raise the limit"),
            std::string::npos)
      << said;
  settings.folders.front() = folder / "nowhere";
  EXPECT_NE(
      failure_of([&] { Store(settings, mib, make_uring); }).find("make that folder or name another one"),
      std::string::npos);
}

// Past the cache or through it, a file system that knows no other way included.
TEST(Store, GoesThroughTheCacheWhereItMust) {
  const TempFolder folder;
  Settings settings = small(folder);
  settings.direct = false;
  Store store(settings, mib, make_uring);
  EXPECT_FALSE(store.files().front()->is_direct());
  write_and_read_back(store);
}

// What a file has lost is no success of fewer bytes.
TEST(Store, NoticesThatAFileWasCut) {
  const TempFolder folder;
  Store store(small(folder), mib, make_uring);
  ASSERT_EQ(::ftruncate(store.files().front()->descriptor(), mib / 2), 0);
  Bytes bytes(static_cast<std::size_t>(mib));
  EXPECT_NE(failure_of([&] { store.read(0, bytes); }).find("the file ends before; something has cut it"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test
