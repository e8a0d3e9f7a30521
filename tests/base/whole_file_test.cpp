// Files that are read whole: what is none is refused at once.
#include "base/whole_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "prun/error.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::whole_file_test {
namespace {

std::string refusal(const std::string& file, std::size_t most = 100) {
  try {
    whole_file(file, most);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    return error.what();
  }
  return "read";
}

TEST(WholeFile, IsReadToItsLastByte) {
  const TempFolder folder;
  const std::string text(200000, 'x');
  EXPECT_EQ(whole_file(folder.write("a", text), 200000), text);
  EXPECT_EQ(whole_file(folder.write("empty", ""), 0), "");
  EXPECT_EQ(refusal(folder.write("b", text), 199999),
            "cannot read '" + folder / "b" + "': it is larger than 199999 bytes");
}

TEST(WholeFile, WhatIsNoFileIsRefusedAtOnce) {
  const TempFolder folder;
  EXPECT_EQ(refusal(folder.path()), "cannot read '" + folder.path() + "': it is a folder, not a file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal(folder / "pipe"), "cannot read '" + folder / "pipe" + "': it is a pipe, not a file");
  EXPECT_EQ(refusal("/dev/zero"), "cannot read '/dev/zero': it is a device, not a file");
  EXPECT_EQ(refusal("/proc/self/mem"), "cannot read '/proc/self/mem': Input/output error; name another file");
  EXPECT_EQ(refusal(folder / "none"), "cannot read '" + folder / "none" + "': there is no such file");
  EXPECT_EQ(refusal(folder.write("file", "x") + "/under"),
            "cannot read '" + folder / "file/under" + "': there is no such file");
}

TEST(WholeFile, WhoReadsItSaysWhatItIsFor) {
  try {
    whole_file("/dev/null", 1, "cannot read the recipe");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot read the recipe: it is a device, not a file");
  }
}

}  // namespace
}  // namespace prun::test::whole_file_test
