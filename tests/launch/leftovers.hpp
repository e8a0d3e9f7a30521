// What a process has left behind under a name: in shared memory, in the folder for temporary files, among
// sockets. Its number is part of the name, so that other runs may be under way meanwhile.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "launch/process.hpp"

namespace prun::test {

inline std::set<std::string> names_of(pid_t pid) {
  const std::string mark = "prun-" + std::to_string(pid) + "-";
  std::set<std::string> names;
  for (const char* folder : {"/dev/shm", "/tmp"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().find(mark) != std::string::npos) names.insert(entry.path());
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    if (line.find(mark) != std::string::npos) names.insert(line);
  return names;
}

// What stays there: who removes it does so when the process has gone, and tries for a minute.
inline std::set<std::string> leftovers(const Process& process) {
  std::set<std::string> names;
  for (const auto start = Clock::now(); seconds_since(start) < 90; ::usleep(2000))
    if (names = names_of(process.pid()); names.empty()) break;
  return names;
}

}  // namespace prun::test
