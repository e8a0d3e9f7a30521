#include "cuda/library.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "prun/error.hpp"

namespace prun::test::library_test {
namespace {

namespace fs = std::filesystem;
using prun::cuda::Library;

// A folder that goes with the test.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("prun-library-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const char* const install = "install the maths";

Library maths(const std::string& folders = {}) {
  return Library({"maths", {"libprun-nothing.so.9", "libm.so.6"}, install}, folders);
}

std::string refusal(const std::vector<std::string>& files, const std::string& folders = {}) {
  try {
    Library({"maths", files, install}, folders);
  } catch (const prun::Error& error) {
    return error.what();
  }
  return "opened";
}

TEST(CudaLibrary, OpensTheFirstFileThereIsAndFindsItsFunctions) {
  const Library library = maths();
  double (*cosine)(double) = nullptr;
  library.find("cos", cosine);
  EXPECT_EQ(cosine(0.5), std::cos(0.5));
  EXPECT_EQ(fs::path(library.path()).filename(), "libm.so.6");
}

TEST(CudaLibrary, LooksIntoFoldersAndTheWheelsInThemFirst) {
  const Folder folder;
  const fs::path wheel = folder.path() / "nvidia" / "maths" / "lib" / "libm.so.6";
  fs::create_directories(wheel.parent_path());
  fs::copy_file(maths().path(), wheel);
  EXPECT_EQ(maths("/nowhere:" + folder.path().string()).path(), wheel.string());
}

TEST(CudaLibrary, AMissingOneIsNamedWithWhatToInstall) {
  const std::string message = refusal({"libprun-nothing.so.9", "libprun-nothing.so.8"});
  EXPECT_EQ(
      message,
      "maths was not found (libprun-nothing.so.9, libprun-nothing.so.8): install the maths, or name its "
      "folder in PRUN_CUDA_LIBRARIES");
}

TEST(CudaLibrary, OneOfAnotherVersionIsNamed) {
  const Folder folder;
  std::ofstream(folder.path() / "libprun-nothing.so.7") << "older";
  const std::string message = refusal({"libprun-nothing.so.9"}, folder.path().string());
  EXPECT_EQ(message,
            "maths was not found (libprun-nothing.so.9), but " + folder.path().string() +
                "/libprun-nothing.so.7: install the maths, or name its folder in PRUN_CUDA_LIBRARIES");
}

TEST(CudaLibrary, ADamagedOneIsNotCalledMissing) {
  const Folder folder;
  const fs::path damaged = folder.path() / "libprun-damaged.so";
  std::ofstream(damaged) << "no library";
  const std::string message = refusal({"libprun-damaged.so"}, folder.path().string());
  EXPECT_TRUE(message.starts_with("maths cannot be loaded: " + damaged.string())) << message;
}

TEST(CudaLibrary, AMissingFunctionIsNamed) {
  void (*function)() = nullptr;
  try {
    maths().find("prun_nothing", function);
    ADD_FAILURE() << "found";
  } catch (const prun::Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no prun_nothing"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace prun::test::library_test
