// Whom a plugin file may belong to and who may write to it and to the folders above.
#include "plugin/loader.hpp"

#include "plugin_fixtures.hpp"

namespace prun {
namespace {

using test::error_of;
using test::holds;

struct stat attributes(mode_t mode, uid_t owner, gid_t group = 1000) {
  struct stat info {};
  info.st_mode = mode;
  info.st_uid = owner;
  info.st_gid = group;
  return info;
}

class Trust : public testing::Test {
 protected:
  Trust() {
    std::filesystem::create_directories(inner_);
    ::chmod(inner_.c_str(), 0755);
    test::write_file(file_, "bytes");
  }
  std::string error() {
    return error_of([&] { open_trusted(file_); });
  }

  test::TempFolder folder_;
  std::filesystem::path inner_ = folder_.path() / "inner";
  std::filesystem::path file_ = inner_ / "x.so";
};

TEST(Distrust, AcceptsRootAndTheUser) {
  EXPECT_EQ(distrust(attributes(S_IFREG | 0755, 0), 1000, 1000), "");
  EXPECT_EQ(distrust(attributes(S_IFREG | 0755, 1000), 1000, 1000), "");
  EXPECT_EQ(distrust(attributes(S_IFREG | 0775, 1000), 1000, 1000), "");
}

TEST(Distrust, RefusesOthers) {
  EXPECT_TRUE(holds(distrust(attributes(S_IFREG | 0755, 1001), 1000, 1000), "belongs to user 1001"));
  EXPECT_TRUE(holds(distrust(attributes(S_IFREG | 0757, 1000), 1000, 1000), "written by anybody"));
  EXPECT_TRUE(holds(distrust(attributes(S_IFDIR | 0777, 0), 1000, 1000), "written by anybody"));
}

// The groups that a file may be shared with are root's and the user's own.
TEST(Distrust, RefusesWhatAForeignGroupMayWrite) {
  EXPECT_EQ(distrust(attributes(S_IFREG | 0775, 1000, 0), 1000, 1000), "");
  EXPECT_EQ(distrust(attributes(S_IFREG | 0755, 1000, 1001), 1000, 1000), "");
  EXPECT_EQ(distrust(attributes(S_IFDIR | S_ISVTX | 0775, 0, 1001), 1000, 1000), "");
  for (const mode_t kind : {S_IFREG, S_IFDIR})
    EXPECT_TRUE(
        holds(distrust(attributes(kind | 0775, 1000, 1001), 1000, 1000), "can be written by group 1001"));
  EXPECT_TRUE(holds(distrust(attributes(S_IFREG | 0664, 0, 1001), 0, 0), "can be written by group 1001"));
}

TEST(Distrust, ExceptsStickyFoldersButNotStickyFiles) {
  EXPECT_EQ(distrust(attributes(S_IFDIR | S_ISVTX | 0777, 0), 1000, 1000), "");
  EXPECT_TRUE(holds(distrust(attributes(S_IFREG | S_ISVTX | 0777, 0), 1000, 1000), "written by anybody"));
}

TEST_F(Trust, AcceptsAFileOfTheUser) {
  const TrustedFile file = open_trusted(file_);
  EXPECT_TRUE(file.descriptor.is_open());
  EXPECT_EQ(file.path, file_);
  EXPECT_TRUE(file.warnings.empty());
}

TEST_F(Trust, RefusesAWorldWritableFile) {
  ::chmod(file_.c_str(), 0666);
  EXPECT_TRUE(holds(error(), "cannot be trusted: it can be written by anybody"));
}

TEST_F(Trust, RefusesAWorldWritableFolderAnywhereAbove) {
  ::chmod(folder_.path().c_str(), 0777);
  EXPECT_TRUE(holds(error(), "its folder '" + folder_.path().string() + "' can be written by anybody"));
  ::chmod(folder_.path().c_str(), 01777);
  EXPECT_EQ(error(), "(no error)");
}

TEST_F(Trust, WarnsOfWhatTheGroupMayWrite) {
  ::chmod(file_.c_str(), 0664);
  ::chmod(inner_.c_str(), 0775);
  const TrustedFile file = open_trusted(file_);
  ASSERT_EQ(file.warnings.size(), 2u);
  EXPECT_TRUE(holds(file.warnings[0], file_.string() + "' can be written by its group"));
  EXPECT_TRUE(holds(file.warnings[1], inner_.string() + "' can be written by its group"));
}

TEST_F(Trust, FollowsALinkAndJudgesWhereItLies) {
  const std::filesystem::path links = folder_.path() / "links";
  std::filesystem::create_directories(links);
  std::filesystem::create_symlink(file_, links / "link.so");
  EXPECT_EQ(open_trusted(links / "link.so").path, file_);
  ::chmod(links.c_str(), 0777);
  EXPECT_TRUE(holds(error_of([&] { open_trusted(links / "link.so"); }), "its folder '" + links.string()));
}

TEST_F(Trust, RefusesWhatIsNoFile) {
  EXPECT_TRUE(holds(error_of([&] { open_trusted(inner_); }), "is not a regular file"));
  ASSERT_EQ(::mkfifo((inner_ / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(holds(error_of([&] { open_trusted(inner_ / "pipe"); }), "is not a regular file"));
  EXPECT_TRUE(holds(error_of([&] { open_trusted(inner_ / "none"); }), "No such file"));
}

TEST_F(Trust, RefusesAFileOfSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chown(file_.c_str(), 12345, 0), 0);
  EXPECT_TRUE(holds(error(), "it belongs to user 12345, neither to root nor to you (0)"));
}

TEST_F(Trust, RefusesWhatAForeignGroupMayWrite) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to any group";
  ASSERT_EQ(::chown(file_.c_str(), 0, 12345), 0);
  ::chmod(file_.c_str(), 0664);
  EXPECT_TRUE(
      holds(error(), "cannot be trusted: it can be written by group 12345, neither root's nor yours (0)"));
  ::chmod(file_.c_str(), 0644);
  ASSERT_EQ(::chown(inner_.c_str(), 0, 12345), 0);
  ::chmod(inner_.c_str(), 0775);
  EXPECT_TRUE(holds(error(), "its folder '" + inner_.string() + "' can be written by group 12345"));
}

TEST_F(Trust, NoticesAReplacedFile) {
  const TrustedFile file = open_trusted(file_);
  EXPECT_NO_THROW(check_same_file(file, file_));
  test::write_file(inner_ / "other", "bytes");
  std::filesystem::rename(inner_ / "other", file_);
  EXPECT_TRUE(holds(error_of([&] { check_same_file(file, file_); }), "it was replaced"));
}

}  // namespace
}  // namespace prun
