// Makes a folder in shared memory for segments that ranks must give a name, if only for an instant: comm
// plugins make segments by name and remove the name a few milliseconds later. A rank that is killed in
// between leaves megabytes of memory behind without an owner. This folder goes with the process that made it,
// however that one ends; if all that it has for that are killed as well, with the next one that is made.
#pragma once

#include <sys/types.h>

#include <string>
#include <thread>

#include "base/durable_file.hpp"

namespace prun {

inline constexpr const char* shared_memory = "/dev/shm";

class SharedFolder {
 public:
  // Makes the folder; its name holds the number of this process: /dev/shm/prun-PID-XXXXXX. There is none if
  // nothing can be written to /dev/shm: then no plugin makes segments there either. Throws unsupported if the
  // process that removes the folder cannot be started. `parent` is another folder for tests, which no other
  // process tidies.
  explicit SharedFolder(const std::string& parent = shared_memory);
  // Removes the folder.
  ~SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  // Returns the path; it is empty if there is none.
  const std::string& path() const { return path_; }

 private:
  void start_remover();
  void keep_a_remover();
  void end();

  std::string path_;
  FileDescriptor folder_;  // stays locked as long as this process or its remover lives
  FileDescriptor alive_;   // end of a pipe; the other end sees it close
  FileDescriptor stop_;    // stops the keeper
  pid_t remover_ = -1;     // remover of the keeper, as long as it runs
  std::thread keeper_;
};

// Removes folders in `parent` that dead processes of this user have left there, whose removers are dead too.
void remove_dead_shared_folders(const std::string& parent = shared_memory);

}  // namespace prun
