// Opens a shared library by name when it is first needed, so that code which uses it can be built, loaded and
// asked what it offers where the library or a driver is missing.
#pragma once

#include <string>
#include <vector>

namespace prun::cuda {

struct LibraryNames {
  const char* title;               // is its name in messages
  std::vector<std::string> files;  // begins with the preferred one, e.g. "libcublasLt.so.13"
  const char* install;             // says what to install where it is missing
};

// It is never closed: CUDA's libraries leave threads and handlers behind that outlive a handle.
class Library {
 public:
  // Opens the first file found, each in all places before the next: in `folders` and those of the environment
  // variable PRUN_CUDA_LIBRARIES (lists separated by colons; a folder of Python packages stands for the
  // libraries of NVIDIA's wheels in it), where the system looks, beside the executable, and where CUDA
  // installs itself. Throws where none is found, or one is that cannot be loaded.
  Library(const LibraryNames& names, const std::string& folders);

  // Returns the file that was opened.
  const std::string& path() const { return path_; }
  // Returns the handle that dlopen gave.
  void* handle() const { return handle_; }

  // Sets a pointer to the function of this name, which must be there.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string title_;
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace prun::cuda
