// The engine of the tier nvme, through a real ring on a real file system: what comes back is what was
// written, whatever goes wrong once; what goes wrong for good is told with drive, place and reason.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "faulty_ring.hpp"
#include "host/host_memory.hpp"
#include "nvme/store.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::store_test {
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
  settings.limit = std::chrono::minutes(4);  // a drive may have others to serve
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

// Counts what a real ring writes.
class CountingRing final : public Ring {
 public:
  CountingRing(std::unique_ptr<Ring> real, std::int64_t& written)
      : real_(std::move(real)), written_(written) {}
  std::string know(std::span<std::byte> memory) override { return real_->know(memory); }
  bool add(const Transfer& transfer) override {
    const bool added = real_->add(transfer);
    if (added && transfer.write) written_ += transfer.bytes;
    return added;
  }
  void wait(std::chrono::microseconds at_most, std::vector<Ended>& ended) override {
    real_->wait(at_most, ended);
  }

 private:
  std::unique_ptr<Ring> real_;
  std::int64_t& written_;
};

// A new store's files are filled with zeros: whoever clears it then would write as much once more.
TEST(Store, IsClearedOnceSomethingWasWritten) {
  const TempFolder folder;
  std::int64_t written = 0;
  Store store(small(folder), 2 * mib, [&](const std::vector<int>& files, std::size_t depth) {
    return std::make_unique<CountingRing>(make_thread_ring(files, depth), written);
  });
  store.clear(0, 2 * mib);
  EXPECT_EQ(written, 0);

  Bytes bytes = drawn(mib, 3);
  const MovedPiece piece{mib / 2, bytes.data(), mib};
  store.open_channel()->move(true, std::span(&piece, 1));
  EXPECT_EQ(written, mib);
  store.clear(0, 2 * mib);
  EXPECT_EQ(written, 3 * mib);
  Bytes back(2 * mib, std::byte{1});
  store.read(0, back);
  EXPECT_EQ(back, Bytes(2 * mib));
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
  const std::string fault = GetParam();
  const bool waits = fault == "late!" || fault == "full!";
  Settings settings = small(folder, 2);
  if (waits) settings.limit = std::chrono::seconds(2);
  Store broken(settings, 2 * mib, make_uring);
  const auto channel = std::make_unique<Channel>(
      broken, with_faults(make_uring, faults_of(fault))(
                  {broken.files()[0]->descriptor(), broken.files()[1]->descriptor()}, 8));
  Bytes bytes = drawn(static_cast<std::size_t>(2 * mib), 1);
  const MovedPiece piece{0, bytes.data(), 2 * mib};
  const auto begin = std::chrono::steady_clock::now();
  const std::string said = failure_of([&] { channel->move(true, {&piece, 1}); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  EXPECT_TRUE(said.starts_with("tier nvme: " + folder.path() + "/drive")) << said;
  EXPECT_NE(said.find(": writing 65536 bytes at "), std::string::npos) << said;
  const std::map<std::string, std::string> reasons = {{"eio!", "Input/output error (errno 5), tried 4 times"},
                                                      {"enospc!", "No space left on device (errno 28)"},
                                                      {"late!", "it has not ended within 2 s"},
                                                      {"full!", "it has not ended within 2 s"}};
  EXPECT_NE(said.find(reasons.at(fault)), std::string::npos) << said;
  write_and_read_back(store);
}

INSTANTIATE_TEST_SUITE_P(Faults, ForGood, testing::Values("eio!", "enospc!", "late!", "full!"),
                         [](const auto& tested) {
                           const std::string name = tested.param;
                           return name.substr(0, name.size() - 1);
                         });

// ---------------------------------------------------------------- what is lost may still come

// A ring that never hands back what it reads, and writes there once more when it is closed: then all must
// still be as it left it, and be nobody else's.
class BelatedRing final : public Ring {
 public:
  explicit BelatedRing(std::vector<Transfer>& all) : all_(all) {}
  ~BelatedRing() override {
    for (const Transfer& transfer : own_) {
      const std::span<const std::byte> bytes(transfer.memory, static_cast<std::size_t>(transfer.bytes));
      EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == mark; }));
      std::fill_n(transfer.memory, transfer.bytes, std::byte{1});
    }
  }
  BelatedRing(const BelatedRing&) = delete;
  BelatedRing& operator=(const BelatedRing&) = delete;

  bool add(const Transfer& transfer) override {
    std::fill_n(transfer.memory, transfer.bytes, mark);
    own_.push_back(transfer);
    all_.push_back(transfer);
    return true;
  }
  void wait(std::chrono::microseconds at_most, std::vector<Ended>&) override {
    std::this_thread::sleep_for(at_most);
  }

 private:
  static constexpr std::byte mark{0xab};
  std::vector<Transfer> own_;
  std::vector<Transfer>& all_;
};

// What a caller gives, on the stack or the heap, goes with the exception.
TEST(LostTransfers, WriteToMemoryOfTheChannelAloneWhichStays) {
  const TempFolder folder;
  Settings settings = small(folder);
  settings.limit = std::chrono::seconds(1);
  std::vector<Transfer> lost;
  std::vector<std::byte> bytes(static_cast<std::size_t>(mib));
  auto* const aligned = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(bytes.data()) + block - 1) / block * block);
  for (const std::size_t count : {std::size_t{256} << 10, std::size_t{100}}) {
    Store store(settings, mib,
                [&](const std::vector<int>&, std::size_t) { return std::make_unique<BelatedRing>(lost); });
    EXPECT_NE(failure_of([&] { store.read(0, std::span(aligned, count)); }).find("not ended within 1 s"),
              std::string::npos);
  }
  ASSERT_FALSE(lost.empty());
  for (const Transfer& transfer : lost) {
    EXPECT_TRUE(transfer.memory + transfer.bytes <= bytes.data() ||
                transfer.memory >= bytes.data() + bytes.size());
    EXPECT_EQ(transfer.memory[transfer.bytes - 1], std::byte{1}) << "it is there still";
  }
}

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

// A file whose last holder is a ring that has ended keeps its room: what starts next would find the drive
// full.
TEST(Uring, LetsGoOfItsFilesWhenItEnds) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  {
    const std::unique_ptr<Ring> ring = make_uring({ends[1]}, 4);
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

// What devices hand out as memory that drives reach is known to the ring as it lies: one buffer, no copy. A
// last block that is not full is all that passes through other memory.
TEST(Store, MovesMemoryOfTheHostWithoutACopy) {
  const TempFolder folder;
  Store store(small(folder), 4 * mib, make_uring);
  const auto out = store.open_channel(), in = store.open_channel();
  auto* const memory = static_cast<std::byte*>(host::map_memory(4 * mib));
  const std::span<std::byte> all(memory, static_cast<std::size_t>(4 * mib));
  const Bytes drawn_bytes = drawn(all.size(), 9);
  std::copy(drawn_bytes.begin(), drawn_bytes.end(), memory);
  EXPECT_EQ(out->know(all), "");
  EXPECT_EQ(in->know(all), "");
  out->move(true, std::vector<MovedPiece>{{0, memory, 4 * mib}});
  std::fill(all.begin(), all.end(), std::byte{0});
  in->move(false, std::vector<MovedPiece>{{0, memory, 3 * mib + 100}});
  EXPECT_EQ(out->copied(), 0);
  EXPECT_EQ(in->copied(), 100);
  EXPECT_TRUE(std::equal(memory, memory + 3 * mib + 100, drawn_bytes.begin()));
  EXPECT_EQ(memory[3 * mib + 100], std::byte{0});
  host::unmap_memory(memory, 4 * mib);
}

// How many hold their threads at a time.
struct Waiting {
  std::atomic<int> now = 0, most = 0;
};

// A ring on which transfers take their time, as on a drive that is far away.
class SlowRing final : public Ring {
 public:
  SlowRing(std::unique_ptr<Ring> real, Waiting& waiting) : real_(std::move(real)), waiting_(waiting) {}
  bool add(const Transfer& transfer) override { return real_->add(transfer); }
  void wait(std::chrono::microseconds at_most, std::vector<Ended>& ended) override {
    const int now = ++waiting_.now;
    int most = waiting_.most;
    while (most < now && !waiting_.most.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    real_->wait(at_most, ended);
    --waiting_.now;
  }

 private:
  std::unique_ptr<Ring> real_;
  Waiting& waiting_;
};

// Threads that draw initial values, or read a checkpoint, do not wait for each other; neighbours that share a
// block lose none of it.
TEST(Store, SeveralThreadsMoveBytesBesideEachOther) {
  const TempFolder folder;
  Waiting waiting;
  Store store(small(folder), mib, [&](const std::vector<int>& files, std::size_t depth) {
    return std::make_unique<SlowRing>(make_uring(files, depth), waiting);
  });
  const Bytes all = drawn(static_cast<std::size_t>(mib) - 4000, 13);
  constexpr std::size_t threads = 12, pieces = 96;
  const auto at = [&](std::size_t piece) { return all.size() * piece / pieces; };
  {
    std::vector<std::jthread> writers;
    for (std::size_t t = 0; t < threads; ++t)
      writers.emplace_back([&, t] {
        for (std::size_t piece = t; piece < pieces; piece += threads) {
          const std::size_t size = at(piece + 1) - at(piece);
          store.write(static_cast<std::int64_t>(at(piece)), std::span(all).subspan(at(piece), size));
          Bytes mine(size);
          store.read(static_cast<std::int64_t>(at(piece)), mine);
          EXPECT_TRUE(
              std::equal(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(at(piece))));
        }
      });
  }
  Bytes read(all.size());
  store.read(0, read);
  EXPECT_TRUE(read == all);
  EXPECT_GT(waiting.most, 1);
  EXPECT_LE(waiting.most, 4);
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
  EXPECT_NE(failure_of([&] { Store(settings, mib, make_uring); }).find("create it, or set another one"),
            std::string::npos);
}

TEST(Store, CountsTheRoomOfAllFoldersForEachRank) {
  const std::vector<std::filesystem::path> folders = {"/proc", "/proc"};  // which has none
  EXPECT_EQ(room_in_all(folders, 2, 4096), 4096);
  const TempFolder folder;
  EXPECT_GT(room_in_all(small(folder, 2).folders, 2, 0), 0);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(room_in_all(small(folder, 2).folders, 2, most), most);
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

// Plans bind copies of the same memory again and again; the kernel takes it in pieces of 1 GiB.
TEST(Store, RegistersMemoryOnceHoweverLargeItIs) {
  constexpr std::int64_t bytes = (std::int64_t{1} << 30) + 4096;
  const TempFolder folder;
  Store store(small(folder), mib, make_uring);
  const auto channel = store.open_channel();
  void* const memory = host::map_memory(bytes);
  const std::span<std::byte> all(static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes));
  const std::string first = channel->know(all);
  for (int i = 0; i < 1024 && first.empty(); ++i) ASSERT_EQ(channel->know(all), "") << i;
  host::unmap_memory(memory, bytes);
  if (!first.empty()) GTEST_SKIP() << "the system registers no memory: " << first;
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
}  // namespace prun::test::store_test
