// Durable files and folders: what appears on success, and that nothing appears on failure or on a crash.
#include "base/durable_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace prun {
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

TEST_F(DurableTest, LeftoverNamesAreSteppedOver) {
  const std::string stale = ".a.tmp-" + std::to_string(::getpid()) + "-0";
  put(at(stale), "stale");
  replace_text_file(at("a"), "new");
  EXPECT_EQ(content(at("a")), "new");
  EXPECT_EQ(content(at(stale)), "stale");
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
  EXPECT_EQ(content(at("latest")), "step-000100\n");
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
  EXPECT_TRUE(contains(storage_error([&] { DurableFolder folder(at("step-1")); }), "File exists"));
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

TEST_F(DurableTest, LatestOnlyNamesAFolderBesideIt) {
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                  std::string("/etc"), std::string("a\nb"), std::string("a\0b", 3)}) {
    EXPECT_THROW(set_latest(folder_, name), Error) << name;
    put(at("latest"), name + "\n");
    EXPECT_THROW(read_latest(folder_), Error) << name;
  }
  put(at("latest"), std::string(10'000, 'x'));
  EXPECT_THROW(read_latest(folder_), Error);
  put(at("latest"), "step-9\n");
  try {
    read_latest(folder_);
    FAIL() << "a missing folder was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
  }
  EXPECT_THROW(set_latest(folder_, "step-9"), Error);
}

}  // namespace
}  // namespace prun
