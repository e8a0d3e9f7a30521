// Watches what the threads of a launch read and write of device and shared memory. The kernels are compiled
// with the calls of ThreadSanitizer at every access, which end here and not in its runtime: it would take
// threads that run one after the other for ordered. Two uses of a byte by two threads, one of them a write
// that is not atomic, need a barrier between them, and no barrier is between two blocks; what is read was
// written before, shared memory by the same block; and what lies beyond what the launch asked for is
// nobody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace prun::simt {

class Watch {
 public:
  enum class Use { read, write, add };

  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Device memory: it lies in one stretch.
  char* memory() const { return memory_; }
  static constexpr std::size_t memory_bytes = std::size_t{1} << 30;
  // Whether these bytes of it hold something, by the host's doing. What a kernel writes does as well.
  void set_written(void* at, std::size_t bytes, bool written);

  void begin_launch();
  void begin_block(std::size_t shared_bytes);
  void pass_barrier() { ++now_; }
  void end_launch() { watching_ = false; }
  void set_thread(int number) { thread_ = static_cast<std::uint16_t>(number); }

  // `site`: an address in the code that does it.
  template <Use how>
  void use(const void* address, std::size_t bytes, const void* site);

  // The first thing found since launches began, as a sentence; empty: nothing.
  const std::string& found() const { return found_; }

 private:
  // Points of time are counted in one number that grows with launches, blocks and barriers. Of what happened
  // in a block, all that is older than `now` is ordered before it.
  struct Cell {
    std::uint32_t written = 0, read = 0;
    std::uint16_t writer = 0, reader = 0;
    std::uint32_t site = 0;  // of the write, from the program's first address
  };
  static constexpr std::uint16_t several = 0xffff, atomically = 0xfffe;
  enum class Fault { none, outside, unwritten, overtaken, overwritten, written_twice };

  template <Use how, bool shared>
  Fault use_cell(Cell& cell, std::uint16_t me, std::uint32_t site) const;
  template <Use how, bool shared>
  void use_cells(Cell* cells, std::size_t count, std::uint32_t site);
  template <bool shared>
  bool conflicts(std::uint32_t when, std::uint16_t who, std::uint16_t me) const;
  void say(Fault fault, bool shared, const Cell& cell, std::uint32_t site);

  char* memory_;
  Cell* cells_;         // of device memory
  bool* holds_;         // by byte of device memory: something was written there
  Cell* shared_cells_;  // of the program's variables
  std::size_t shared_bytes_ = 0;
  std::uint32_t now_ = 1, launch_ = 0, block_ = 0;
  std::uint16_t thread_ = 0;
  bool watching_ = false;
  const std::uintptr_t program_base_;
  std::string found_;
};

Watch& watch();

}  // namespace prun::simt
