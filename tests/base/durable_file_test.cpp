// Durable files and folders: what appears on success, and that nothing appears on failure or on a crash.
#include "base/durable_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.hpp"

namespace prun::durable_file_test {
namespace {

namespace fs = std::filesystem;

class DurableTest : public ::testing::Test {
 protected:
  DurableTest() {
    std::string pattern = (fs::temp_directory_path() / "prun-durable-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw_storage_error("create", pattern, errno);
    folder_ = pattern;
  }
  ~DurableTest() override { fs::remove_all(folder_); }

  fs::path at(const std::string& name) const { return folder_ / name; }

  // Names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& item : fs::directory_iterator(folder_)) out.push_back(item.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }

  fs::path folder_;
};

using Names = std::vector<std::string>;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// The message of the storage error that `action` must throw.
std::string storage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::storage) << error.what();
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs `body` in a child process; its exit status, or 128 + the signal that ended it.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Caps the size of files while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  sighandler_t handler_;
};

TEST_F(DurableTest, FileAppearsAtCommitOnly) {
  DurableFile file(at("a.bin"));
  file.write("hello ");
  file.write("world");
  EXPECT_FALSE(fs::exists(at("a.bin")));
  ASSERT_EQ(names().size(), 1u);
  EXPECT_TRUE(is_temporary_name(names()[0]));
  file.commit();
  EXPECT_EQ(content(at("a.bin")), "hello world");
  EXPECT_EQ(names(), Names{"a.bin"});
}

TEST_F(DurableTest, FileGetsTheUsualPermissions) {
  const mode_t before = ::umask(027);
  replace_text_file(at("a"), "x");
  ::umask(before);
  EXPECT_EQ(fs::status(at("a")).permissions(), static_cast<fs::perms>(0640));
}

TEST_F(DurableTest, AbandonedFileLeavesTheOldOne) {
  put(at("a"), "old");
  {
    DurableFile file(at("a"));
    file.write("new");
  }
  EXPECT_EQ(content(at("a")), "old");
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(DurableTest, CommitReplacesTheOldFile) {
  put(at("a"), "a longer old text");
  replace_text_file(at("a"), "new");
  EXPECT_EQ(content(at("a")), "new");
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(DurableTest, ALinkStaysAndItsFileIsReplaced) {
  fs::create_directory(at("there"));
  put(at("there/file"), "old");
  fs::create_symlink("there/file", at("near"));
  fs::create_symlink("near", at("far"));
  fs::create_symlink("there/new", at("dangling"));
  replace_text_file(at("far"), "new");
  replace_text_file(at("dangling"), "also new");
  EXPECT_EQ(content(at("there/file")), "new");
  EXPECT_EQ(content(at("there/new")), "also new");
  for (const char* link : {"far", "near", "dangling"}) EXPECT_TRUE(fs::is_symlink(at(link))) << link;
  fs::create_symlink("ring", at("ring"));
  EXPECT_TRUE(contains(storage_error([&] { replace_text_file(at("ring"), "x"); }), "ring"));
}

TEST_F(DurableTest, APipeIsWrittenInto) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(storage_error([&] { replace_text_file(at("pipe"), "x"); }), "start what reads"));
  const FileDescriptor reader(::open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  replace_text_file(at("pipe"), "text");
  std::string read(100, '\0');
  EXPECT_EQ(::read(reader.get(), read.data(), read.size()), 4);
  EXPECT_EQ(read.substr(0, 4), "text");
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
  EXPECT_EQ(names(), Names{"pipe"});
}

TEST_F(DurableTest, ADeviceIsWrittenIntoAndADiskRefused) {
  if (::mknod(at("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
      ::mknod(at("disk").c_str(), S_IFBLK | 0600, makedev(7, 250)) != 0)
    GTEST_SKIP() << "devices cannot be made here";
  try {
    replace_text_file(at("null"), "text");
  } catch (const Error& error) {  // a file system that allows no devices
    EXPECT_TRUE(contains(error.what(), "Permission denied")) << error.what();
  }
  EXPECT_THROW(replace_text_file(at("disk"), "text"), Error);
  EXPECT_TRUE(fs::is_character_file(at("null")));
  EXPECT_TRUE(fs::is_block_file(at("disk")));
  EXPECT_EQ(names(), (Names{"disk", "null"}));
}

TEST_F(DurableTest, ManyWritersOfOneNameDoNotMix) {
  DurableFile first(at("a")), second(at("a"));
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(content(at("a")), "first");
  EXPECT_EQ(names(), Names{"a"});
}

// As rank 0 does once it sees the files of the others, which may not be through with theirs.
TEST_F(DurableTest, AFolderMayBeRenamedAsSoonAsItsFileIsThere) {
  for (int turn = 0; turn < 300; ++turn) {
    const fs::path staging = at("staging"), file = staging / "file",
                   done = at("done-" + std::to_string(turn));
    fs::create_directory(staging);
    std::thread other([&] {
      while (::access(file.c_str(), F_OK) != 0) {
      }
      EXPECT_EQ(::rename(staging.c_str(), done.c_str()), 0);
    });
    std::string failure;
    try {
      DurableFile written(file);
      written.write("whole");
      written.commit();
    } catch (const Error& error) {
      failure = error.what();
    }
    other.join();
    ASSERT_EQ(failure, "") << "turn " << turn;
    EXPECT_EQ(content(done / "file"), "whole");
  }
}

TEST_F(DurableTest, PlainNameMeansTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  replace_text_file("here", "x");
  fs::current_path(before);
  EXPECT_EQ(content(at("here")), "x");
}

TEST_F(DurableTest, FileTooLargeIsReportedAndRemoved) {
  put(at("a"), "old");
  const std::string large(1 << 20, 'x');
  std::string message;
  {
    const FileSizeLimit limit(64 << 10);
    DurableFile file(at("a"));
    message = storage_error([&] { file.write(large); });  // takes 64 KiB, then fails
    EXPECT_THROW(file.write("more"), Error);
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_TRUE(contains(message, at("a").string())) << message;
  EXPECT_TRUE(contains(message, "File too large")) << message;
  EXPECT_TRUE(contains(message, "ulimit -f")) << message;
  EXPECT_EQ(content(at("a")), "old");
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(DurableTest, FullDeviceIsReported) {
  const FileDescriptor full(::open("/dev/full", O_WRONLY));
  ASSERT_TRUE(full.is_open());
  const std::string text = "x";
  const std::string message =
      storage_error([&] { write_fully(full.get(), std::as_bytes(std::span(text)), "/dev/full"); });
  EXPECT_EQ(message,
            "cannot write '/dev/full': No space left on device; free some space or choose a folder on "
            "another disk");
}

TEST_F(DurableTest, FullFileSystemLeavesNothingBehind) {
  constexpr int no_permission = 77;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=256k") != 0) {
      return no_permission;
    }
    replace_text_file(at("a"), "old");
    try {
      replace_text_file(at("a"), std::string(1 << 20, 'x'));
      return 1;
    } catch (const Error& error) {
      if (!contains(error.what(), "No space left on device")) return 2;
    }
    return content(at("a")) == "old" && names() == Names{"a"} ? 0 : 3;
  });
  if (status == no_permission) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST_F(DurableTest, ReadOnlyFileSystemIsReported) {
  constexpr int no_permission = 77;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder_.c_str(), "tmpfs", MS_RDONLY, "size=256k") != 0) {
      return no_permission;
    }
    const std::string message = storage_error([&] { DurableFile file(at("a")); });
    return contains(message, "Read-only file system") && contains(message, "may write to") ? 0 : 1;
  });
  if (status == no_permission) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST_F(DurableTest, FailedSyncIsReported) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor in(ends[0]), out(ends[1]);
  EXPECT_TRUE(contains(storage_error([&] { sync_descriptor(out.get(), "pipe"); }), "cannot sync 'pipe'"));
}

TEST_F(DurableTest, WrongTargetsAreReported) {
  put(at("file"), "x");
  fs::create_directory(at("folder"));
  EXPECT_TRUE(contains(storage_error([&] { DurableFile file(at("file") / "a"); }), "Not a directory"));
  EXPECT_TRUE(contains(storage_error([&] { DurableFile file(at("none") / "a"); }), "No such file"));
  EXPECT_TRUE(contains(storage_error([&] { DurableFile file(at("folder")); }), "Is a directory"));
  EXPECT_TRUE(contains(storage_error([&] { DurableFile file(at(std::string(300, 'n'))); }), "name too long"));
  EXPECT_THROW(DurableFile(fs::path("..")), Error);
  EXPECT_THROW(DurableFile(fs::path("")), Error);
  EXPECT_TRUE(contains(storage_error([&] { sync_folder(at("none")); }), "cannot open"));
}

TEST_F(DurableTest, TargetThatBecomesAFolderFailsAtCommit) {
  DurableFile file(at("a"));
  file.write("x");
  fs::create_directory(at("a"));
  EXPECT_TRUE(contains(storage_error([&] { file.commit(); }), "cannot put the finished data in place"));
  EXPECT_THROW(file.commit(), Error);
}

TEST_F(DurableTest, KilledWriterLeavesTheOldFileAndAMarkedLeftover) {
  put(at("a"), "old");
  const int status = in_child([&] {
    DurableFile file(at("a"));
    file.write("half");
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_EQ(content(at("a")), "old");
  ASSERT_EQ(names().size(), 2u);
  EXPECT_TRUE(is_temporary_name(names()[0])) << names()[0];
  replace_text_file(at("a"), "new");
  EXPECT_EQ(content(at("a")), "new");
}

TEST_F(DurableTest, ForkedChildDoesNotRemoveItsParentsWork) {
  DurableFile file(at("a"));
  DurableFolder folder(at("f"));
  file.write("x");
  EXPECT_EQ(in_child([&] {
              file.~DurableFile();
              folder.~DurableFolder();
              return 0;
            }),
            0);
  file.commit();
  folder.commit();
  EXPECT_EQ(names(), (Names{"a", "f"}));
}

// As where a rank has failed and the others still write their files.
TEST_F(DurableTest, IsGivenUpThoughOthersStillFillIt) {
  for (int trial = 0; trial < 300; ++trial) {
    auto folder = std::make_unique<DurableFolder>(at("filled"));
    const fs::path staging = folder->staging();
    std::thread others([&] {
      for (int file = 0; file < 9; ++file) {
        std::ofstream out(staging / std::to_string(file));
        if (!out) return;  // the folder has gone
      }
    });
    while (fs::is_empty(staging)) std::this_thread::yield();
    folder.reset();
    others.join();
    EXPECT_FALSE(fs::exists(staging)) << trial;
  }
}

// Of a process that is gone it goes, of one that is alive it stays, whatever its number.
TEST_F(DurableTest, LeftoverNamesAreSteppedOverOrCleared) {
  const std::string start = ".a.tmp-" + std::to_string(::getpid());
  put(at(start + "-0"), "of one alive");
  put(at(start + "-1"), "of a dead one");
  const FileDescriptor living(::open(at(start + "-0").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(living.get(), LOCK_EX | LOCK_NB), 0);
  replace_text_file(at("a"), "new");
  EXPECT_EQ(content(at("a")), "new");
  EXPECT_EQ(names(), (Names{start + "-0", "a"}));
  EXPECT_EQ(content(at(start + "-0")), "of one alive");
}

// Whoever clears away does not know how far another is: never a name is taken from one that is about to lock
// it.
TEST_F(DurableTest, ClearingBesideWritersTakesNothingFromThem) {
  std::jthread cleaner([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) clear_dead_copies(at("a"));
  });
  for (int i = 0; i < 300; ++i) {
    DurableFolder folder(at("a"), Existing::replace);
    put(folder.staging() / "x", "1");
    folder.commit();
  }
  cleaner = {};
  EXPECT_EQ(content(at("a/x")), "1");
  clear_dead_copies(at("a"));
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(DurableTest, TheNextOfTheSameTargetClearsWhatTheDeadHaveLeft) {
  ASSERT_EQ(in_child([&] {
              DurableFolder folder(at("a"));
              put(folder.staging() / "large", "x");
              DurableFolder other(at("b"));
              return ::raise(SIGKILL);
            }),
            128 + SIGKILL);
  ASSERT_EQ(names().size(), 2u);
  const DurableFolder living(at("c"));
  DurableFolder(at("a")).commit();
  const Names left = names();
  ASSERT_EQ(left.size(), 3u);
  EXPECT_TRUE(left[0].starts_with(".b.tmp-")) << left[0];
  EXPECT_EQ(left[1], living.staging().filename());
  EXPECT_EQ(left[2], "a");
}

TEST_F(DurableTest, AnEndRemovesWhatIsUnfinishedAndNothingElse) {
  put(at("b"), "old");
  EXPECT_EQ(in_child([&] {
              DurableFolder folder(at("a")), done(at("done"));
              put(folder.staging() / "x", "1");
              DurableFile file(at("b"));
              file.write("new");
              done.commit();
              remove_what_is_unfinished();
              ::_exit(7);
              return 0;
            }),
            7);
  EXPECT_EQ(names(), (Names{"b", "done"}));
  EXPECT_EQ(content(at("b")), "old");
}

TEST(TemporaryName, IsRecognised) {
  EXPECT_TRUE(is_temporary_name(".model.safetensors.tmp-123-0"));
  EXPECT_TRUE(is_temporary_name(".a.tmp-1-99"));
  EXPECT_TRUE(is_temporary_name(".x.tmp-1-2.tmp-3-4"));
  for (const char* name : {"", ".", "a.tmp-1-0", ".a", ".a.tmp-", ".a.tmp-1", ".a.tmp-1-", ".a.tmp--1",
                           ".tmp-1-0", ".a.tmp-1-0x", ".a.tmp-1-2-3", "step-000100"}) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

TEST_F(DurableTest, FolderAppearsWholeAndBecomesLatest) {
  EXPECT_EQ(read_latest(folder_), std::nullopt);
  DurableFolder folder(at("step-000100/"));  // a slash at the end is harmless
  put(folder.staging() / "a", "1");
  fs::create_directory(folder.staging() / "sub");
  replace_text_file(folder.staging() / "sub" / "b", "2");
  EXPECT_FALSE(fs::exists(at("step-000100")));
  folder.commit_as_latest();
  EXPECT_EQ(content(at("step-000100/a")), "1");
  EXPECT_EQ(content(at("step-000100/sub/b")), "2");
  EXPECT_EQ(content(at("latest")), sealed_line("step-000100"));
  EXPECT_EQ(read_latest(folder_), at("step-000100"));
  EXPECT_EQ(names(), (Names{"latest", "step-000100"}));
}

TEST_F(DurableTest, LatestMovesOn) {
  for (const char* name : {"step-1", "step-2"}) {
    DurableFolder folder(at(name));
    folder.commit_as_latest();
  }
  EXPECT_EQ(read_latest(folder_), at("step-2"));
  set_latest(folder_, "step-1");
  EXPECT_EQ(read_latest(folder_), at("step-1"));
}

TEST_F(DurableTest, AbandonedFolderVanishes) {
  {
    DurableFolder folder(at("step-1"));
    put(folder.staging() / "a", "1");
  }
  EXPECT_EQ(names(), Names{});
}

TEST_F(DurableTest, KilledFolderWriterLeavesLatestAlone) {
  DurableFolder(at("step-1")).commit_as_latest();
  const int status = in_child([&] {
    DurableFolder folder(at("step-2"));
    put(folder.staging() / "a", "1");
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_FALSE(fs::exists(at("step-2")));
  EXPECT_EQ(read_latest(folder_), at("step-1"));
}

TEST_F(DurableTest, ExistingFolderIsRefused) {
  fs::create_directory(at("step-1"));
  try {
    DurableFolder folder(at("step-1"));
    ADD_FAILURE() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_TRUE(contains(error.what(), "/step-1' is there already; remove it or choose another name"))
        << error.what();
  }
  DurableFolder folder(at("step-2"));
  fs::create_directory(at("step-2"));
  put(at("step-2") / "other", "x");
  EXPECT_TRUE(contains(storage_error([&] { folder.commit(); }), "Directory not empty"));
  EXPECT_EQ(content(at("step-2/other")), "x");
}

TEST_F(DurableTest, FolderWithUnfinishedFilesIsRefused) {
  DurableFolder folder(at("step-1"));
  DurableFile file(folder.staging() / "a");
  EXPECT_TRUE(contains(storage_error([&] { folder.commit(); }), "unfinished"));
  EXPECT_FALSE(fs::exists(at("step-1")));
  file.commit();
  folder.commit();
  EXPECT_TRUE(fs::exists(at("step-1/a")));
  EXPECT_THROW(folder.commit(), Error);
}

TEST_F(DurableTest, FolderWithAPipeIsRefused) {
  DurableFolder folder(at("step-1"));
  ASSERT_EQ(::mkfifo((folder.staging() / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(storage_error([&] { folder.commit(); }), "neither a file nor a folder"));
}

// The message of the error that read_latest() must throw, which is for the user to mend.
std::string latest_error(const fs::path& folder) {
  try {
    read_latest(folder);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    return error.what();
  }
  return "no error";
}

TEST_F(DurableTest, LatestOnlyNamesAFolderBesideIt) {
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                  std::string("/etc"), std::string("a\nb"), std::string("a\0b", 3)}) {
    EXPECT_THROW(set_latest(folder_, name), Error) << name;
    put(at("latest"), sealed_line(name));
    EXPECT_TRUE(contains(latest_error(folder_), "is damaged or was not written by prun")) << name;
  }
  EXPECT_THROW(set_latest(folder_, "step-9"), Error);
  put(at("latest"), sealed_line("step-9"));
  EXPECT_TRUE(contains(latest_error(folder_), "names 'step-9', which is not there"));
  put(at("step-9"), "a file");
  EXPECT_TRUE(contains(latest_error(folder_), "names 'step-9', which is not a folder"));
  EXPECT_THROW(set_latest(folder_, "step-9"), Error);
  fs::remove(at("step-9"));
  fs::create_directory_symlink("/", at("step-9"));  // leads out of the folder
  EXPECT_TRUE(contains(latest_error(folder_), "names 'step-9', which is not a folder"));
}

TEST_F(DurableTest, LatestThatPrunDidNotWriteIsRefused) {
  fs::create_directory(at("step-1"));
  for (const std::string& text : {std::string(), std::string("step-1"), std::string("step-1\n"),
                                  std::string("\0\xff\n", 3), sealed_line("step-1") + "x"}) {
    put(at("latest"), text);
    EXPECT_TRUE(contains(latest_error(folder_), "is damaged or was not written by prun")) << text;
  }
  put(at("latest"), std::string(10'000, 'x'));
  EXPECT_TRUE(contains(latest_error(folder_), "is longer than"));
}

TEST_F(DurableTest, LatestThatIsNoFileIsRefusedAtOnce) {
  const auto refused = [&] {
    EXPECT_TRUE(contains(latest_error(folder_), "latest' is not a file"));
    fs::remove_all(at("latest"));
  };
  fs::create_directory(at("latest"));
  refused();
  ASSERT_EQ(::mkfifo(at("latest").c_str(), 0600), 0);
  refused();
  fs::create_symlink("/dev/zero", at("latest"));
  refused();
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", at("latest").c_str());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  refused();
}

TEST_F(DurableTest, OverwritingChangesOnlyWhatIsThere) {
  DurableFile file(at("a"));
  file.write("0000 and the rest");
  file.write_at(1, "12");
  file.write("!");
  file.commit();
  EXPECT_EQ(content(at("a")), "0120 and the rest!");
}

// ---- what is replaced, what is left ----

void save(const fs::path& target, const std::string& text, Existing existing = Existing::replace) {
  DurableFolder folder(target, existing);
  put(folder.staging() / "a", text);
  folder.commit_as_latest();
}

TEST_F(DurableTest, FolderTakesThePlaceOfAnother) {
  save(at("step-1"), "old");
  put(at("step-1/more"), "x");
  {
    DurableFolder folder(at("step-1"), Existing::replace);
    put(folder.staging() / "a", "never finished");
  }
  EXPECT_EQ(content(at("step-1/a")), "old");
  save(at("step-1"), "new");
  EXPECT_EQ(content(at("step-1/a")), "new");
  EXPECT_FALSE(fs::exists(at("step-1/more")));
  EXPECT_EQ(names(), (Names{"latest", "step-1"}));
}

TEST_F(DurableTest, OnlyAFolderIsReplacedByAFolder) {
  put(at("step-1"), "a file");
  EXPECT_TRUE(contains(storage_error([&] { save(at("step-1"), "new"); }), "Not a directory"));
  EXPECT_EQ(content(at("step-1")), "a file");
  EXPECT_EQ(names(), Names{"step-1"});
}

// From here on, two names cannot trade places, as on some network file systems.
bool forbid_exchange() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(DurableTest, FolderTakesThePlaceOfAnotherWhereNamesCannotBeExchanged) {
  constexpr int no_permission = 77;
  save(at("step-1"), "old");
  const int status = in_child([&] {
    if (!forbid_exchange()) return no_permission;
    save(at("step-1"), "new");
    return 0;
  });
  if (status == no_permission) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content(at("step-1/a")), "new");
  EXPECT_EQ(names(), (Names{"latest", "step-1"}));
}

// Where a process without that exchange may be killed: the old one stands aside, the new one is unfinished;
// then the new one is in place, the old one not gone.
TEST_F(DurableTest, FolderThatStandsAsideIsFoundAndComesBack) {
  save(at("step-1"), "old");
  fs::rename(at("step-1"), at(".step-1.replaced"));
  EXPECT_EQ(read_latest(folder_), at(".step-1.replaced"));
  clear_dead_saves(folder_);
  EXPECT_EQ(content(at("step-1/a")), "old");
  fs::copy(at("step-1"), at(".step-1.replaced"));
  clear_dead_saves(folder_);
  EXPECT_EQ(names(), (Names{"latest", "step-1"}));
  put(at("step-2"), "somebody's file");
  fs::copy(at("step-1"), at(".step-2.replaced"));
  clear_dead_saves(folder_);
  EXPECT_EQ(names(), (Names{".step-2.replaced", "latest", "step-1", "step-2"}));
}

TEST_F(DurableTest, OnlyWhatTheDeadHaveLeftIsCleared) {
  const int status = in_child([&] {
    DurableFolder folder(at("step-1"));
    put(folder.staging() / "a", "1");
    DurableFile file(at("latest"));
    return ::raise(SIGKILL);
  });
  ASSERT_EQ(status, 128 + SIGKILL);
  ASSERT_EQ(names().size(), 2u);
  DurableFolder living(at("step-1"));
  DurableFile living_file(at("latest"));
  const Names own = {".hidden", ".step-1.tmp", "step-1.tmp-1-0"};
  for (const std::string& name : own) put(at(name), "x");
  clear_dead_saves(folder_);
  EXPECT_EQ(names().size(), 2 + own.size());
  for (const std::string& name : own) EXPECT_TRUE(fs::exists(at(name))) << name;
  put(living.staging() / "a", "1");
  living.commit();
  living_file.write("x");
  living_file.commit();
  EXPECT_TRUE(contains(storage_error([&] { clear_dead_saves(at("nowhere")); }), "cannot list"));
}

TEST_F(DurableTest, RemovedFolderIsGone) {
  save(at("step-1"), "x");
  remove_folder(at("step-1"));
  EXPECT_EQ(names(), Names{"latest"});
  remove_folder(at("step-1"));  // somebody else was quicker
  EXPECT_EQ(names(), Names{"latest"});
  EXPECT_TRUE(contains(storage_error([&] { remove_folder(at("latest")); }), "Not a directory"));
  EXPECT_EQ(names(), Names{"latest"});
}

}  // namespace
}  // namespace prun::durable_file_test
