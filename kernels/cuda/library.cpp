#include "cuda/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "prun/error.hpp"

namespace prun::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* environment = "PRUN_CUDA_LIBRARIES";

// Adds a folder, and the folders of NVIDIA's wheels in it: nvidia/NAME/lib.
void add_folder(const fs::path& folder, std::vector<fs::path>& to) {
  to.push_back(folder);
  std::error_code none;
  std::vector<fs::path> wheels;
  for (const fs::directory_entry& package : fs::directory_iterator(folder / "nvidia", none))
    wheels.push_back(package.path() / "lib");
  std::sort(wheels.begin(), wheels.end());
  to.insert(to.end(), wheels.begin(), wheels.end());
}

std::vector<fs::path> listed_folders(const std::string& folders) {
  const char* more = std::getenv(environment);
  std::istringstream list(folders + ':' + (more ? more : ""));
  std::vector<fs::path> all;
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty()) add_folder(folder, all);
  return all;
}

std::vector<fs::path> usual_folders() {
  std::error_code none;
  const fs::path executable = fs::read_symlink("/proc/self/exe", none).parent_path();
  return {executable, executable.parent_path() / "lib", "/usr/local/cuda/lib64"};
}

std::string path_of(void* handle, const std::string& opened_as) {
  const link_map* entry = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &entry) == 0 ? entry->l_name : opened_as;
}

// Returns the places in which a file of this name is looked for; the bare name stands for the system's.
std::vector<std::string> candidates(const std::string& file, const std::vector<fs::path>& listed) {
  std::vector<std::string> all;
  const auto add = [&](const std::vector<fs::path>& folders) {
    std::error_code none;
    for (const fs::path& folder : folders)
      if (fs::exists(folder / file, none)) all.push_back(folder / file);
  };
  add(listed);
  all.push_back(file);
  add(usual_folders());
  return all;
}

// Names a file of another version among the listed folders, such as libcublasLt.so.11, or nothing.
std::string other_version(const std::string& file, const std::vector<fs::path>& listed) {
  const std::string stem = file.substr(0, file.find(".so.") + 4);
  std::error_code none;
  for (const fs::path& folder : listed)
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
      if (entry.path().filename().string().starts_with(stem)) return ", but " + entry.path().string();
  return "";
}

}  // namespace

Library::Library(const LibraryNames& names, const std::string& folders) : title_(names.title) {
  const std::vector<fs::path> listed = listed_folders(folders);
  std::string looked_for, broken;
  for (const std::string& file : names.files) {
    looked_for += (looked_for.empty() ? "" : ", ") + file;
    for (const std::string& candidate : candidates(file, listed)) {
      handle_ = dlopen(candidate.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (handle_) {
        path_ = path_of(handle_, candidate);
        return;
      }
      const std::string reason = dlerror();
      if (broken.empty() && !reason.starts_with(file + ": cannot open shared object file")) broken = reason;
    }
  }
  if (!broken.empty()) throw_error(ErrorCode::unsupported, title_, " cannot be loaded: ", broken);
  throw_error(ErrorCode::unsupported, title_, " was not found (", looked_for, ")",
              other_version(names.files.front(), listed), ": ", names.install, ", or name its folder in ",
              environment);
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  if (!found)
    throw_error(ErrorCode::unsupported, title_, " at ", path_, " has no ", name, ": install a newer version");
  return found;
}

}  // namespace prun::cuda
