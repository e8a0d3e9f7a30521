// A folder in shared memory for what ranks must give a name, if only for an instant: comm plugins make
// segments by name and take the name away a few milliseconds later. A rank that is killed in between leaves
// megabytes of memory behind that nobody owns. This folder goes with the process that made it, however that
// one ends; if all that it has for that are killed as well, with the next one that is made.
#pragma once

#include <sys/types.h>

#include <string>
#include <thread>

#include "base/durable_file.hpp"

namespace prun {

class SharedFolder {
 public:
  // Its name holds the number of this process: /dev/shm/prun-PID-XXXXXX. No folder where nothing can be
  // written to /dev/shm: then nobody makes segments there either. Throws unsupported when the process that
  // removes the folder cannot be started.
  SharedFolder();
  // The folder is gone afterwards.
  ~SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  // Empty: there is none.
  const std::string& path() const { return path_; }

 private:
  void start_remover();
  void keep_a_remover();
  void end();

  std::string path_;
  FileDescriptor folder_;  // locked for as long as this process or its remover lives
  FileDescriptor alive_;   // the other end sees it close
  FileDescriptor stop_;    // of the keeper
  pid_t remover_ = -1;     // the keeper's, as long as it runs
  std::thread keeper_;
};

// What processes of this user have left there that are dead, their removers too.
void remove_dead_shared_folders();

}  // namespace prun
