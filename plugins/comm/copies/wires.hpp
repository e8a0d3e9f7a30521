// Connects the members of a group by sockets, for what they tell each other once memory is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace prun::copies {

// Owns an open file.
class File {
 public:
  File() = default;
  explicit File(int number) : number_(number) {}
  ~File();
  File(File&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }

 private:
  int number_ = -1;
};

class Wires {
 public:
  // Listens under a name that the others must be told. `aborted` says that whoever waits gives up.
  Wires(std::int32_t rank, std::int32_t size, const std::atomic<bool>& aborted);

  const std::string& name() const { return name_; }
  // Meets the others, whose names are given by member; this is collective.
  void connect(const std::vector<std::string>& names);

  // Each member gives `bytes`, few enough for a socket to hold them, and gets what all gave; this is
  // collective.
  void all_gather(const void* mine, std::size_t bytes, void* all);
  // Each member gives a file and gets all others'; this is collective.
  std::vector<File> all_gather_files(int mine);

 private:
  void send(std::int32_t to, const void* data, std::size_t bytes) const;
  void receive(std::int32_t from, void* data, std::size_t bytes) const;
  void send_file(std::int32_t to, int file) const;
  File receive_file(std::int32_t from) const;
  void await(int file) const;

  const std::int32_t rank_, size_;
  const std::atomic<bool>& aborted_;
  std::string name_;
  File listener_;
  std::vector<File> sockets_;  // by member
};

}  // namespace prun::copies
