#include "tests/simt/watch.hpp"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "prun/error.hpp"
#include "tests/simt/machine.hpp"

// The program's variables, as the linker lays them out. Those that a kernel writes are its shared memory.
extern "C" char __data_start, _end;

namespace prun::simt {
namespace {

template <class T>
T* reserve(std::size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorCode::internal, "no addresses for ", count * sizeof(T), " bytes");
  return static_cast<T*>(memory);
}

std::size_t variables_bytes() { return static_cast<std::size_t>(&_end - &__data_start); }

// Where the program was loaded, which is what its addresses in the file are counted from.
std::uintptr_t program_base() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* first, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = first->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

// The lines of code at an address, from the innermost inlined function to the kernel and its launch.
std::string lines_of(std::uint32_t site) {
  std::array<char, 128> command;
  std::snprintf(command.data(), command.size(), "addr2line -i -e /proc/%d/exe 0x%x",
                static_cast<int>(getpid()),
                site - 1);  // a return address is that of the next instruction
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.data(), "r"), pclose);
  std::string lines;
  for (std::array<char, 512> line; output && std::fgets(line.data(), line.size(), output.get());) {
    std::string text = line.data();
    text.erase(text.find_last_not_of(" \n") + 1);
    if (const std::size_t more = text.find(" (discriminator"); more != std::string::npos) text.erase(more);
    text.erase(0, text.rfind('/') + 1);
    if (text.starts_with("machine.hpp:")) break;  // who launched it
    lines += (lines.empty() ? "" : " in ") + text;
  }
  return lines.empty() ? "an unknown place" : lines;
}

}  // namespace

namespace {

Watch the_watch;

}  // namespace

Watch& watch() { return the_watch; }

Watch::Watch()
    : memory_(reserve<char>(memory_bytes)),
      cells_(reserve<Cell>(memory_bytes)),
      holds_(reserve<bool>(memory_bytes)),
      shared_cells_(reserve<Cell>(variables_bytes())),
      program_base_(program_base()) {}

Watch::~Watch() {
  munmap(memory_, memory_bytes);
  munmap(cells_, memory_bytes * sizeof(Cell));
  munmap(holds_, memory_bytes);
  munmap(shared_cells_, variables_bytes() * sizeof(Cell));
}

void Watch::set_written(void* at, std::size_t bytes, bool written) {
  const auto begin = static_cast<std::size_t>(static_cast<char*>(at) - memory_);
  if (begin < memory_bytes) std::memset(holds_ + begin, written, bytes);
}

void Watch::begin_launch() {
  launch_ = ++now_;
  watching_ = true;
  found_.clear();
}

void Watch::begin_block(std::size_t shared_bytes) {
  block_ = ++now_;
  shared_bytes_ = shared_bytes;
}

template <bool shared>
inline bool Watch::conflicts(std::uint32_t when, std::uint16_t who, std::uint16_t me) const {
  if (when == now_) return who != me;
  return !shared && when >= launch_ && when < block_ && (who != atomically || me != atomically);
}

template <Watch::Use how, bool shared>
inline Watch::Fault Watch::use_cell(Cell& cell, std::uint16_t me, std::uint32_t site) const {
  if (shared && how == Use::read && cell.written < block_) return Fault::unwritten;
  if (conflicts<shared>(cell.written, cell.writer, me))
    return how == Use::read ? Fault::overtaken : Fault::written_twice;
  if (how != Use::read) {
    if (conflicts<shared>(cell.read, cell.reader, me)) return Fault::overwritten;
    cell.written = now_, cell.writer = me, cell.site = site;
  } else if (shared || cell.read < launch_ ||
             cell.read >= block_) {  // else no write of this launch may follow
    cell.reader = cell.read == now_ && cell.reader != me ? several : me;
    cell.read = now_;
  }
  return Fault::none;
}

template <Watch::Use how, bool shared>
void Watch::use_cells(Cell* cells, std::size_t count, std::uint32_t site) {
  const std::uint16_t me = how == Use::add ? atomically : thread_;
  // Halves of numbers are used by nobody: of each two bytes the first stands for both.
  const std::size_t step = count % 2 == 0 ? 2 : 1;
  for (std::size_t i = 0; i < count; i += step)
    if (const Fault fault = use_cell<how, shared>(cells[i], me, site); fault != Fault::none)
      return say(fault, shared, cells[i], site);
}

template <Watch::Use how>
inline void Watch::use(const void* address, std::size_t bytes, const void* site) {
  if (!watching_) return;
  const auto at = static_cast<const char*>(address);
  const auto in_memory = static_cast<std::size_t>(at - memory_),
             in_variables = static_cast<std::size_t>(at - &__data_start);
  const auto from_base = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(site) - program_base_);
  if (in_memory < memory_bytes) {
    bool* const holds = holds_ + in_memory;
    if (how != Use::write && std::find(holds, holds + bytes, false) != holds + bytes)
      return say(Fault::unwritten, false, cells_[in_memory], from_base);
    if (how == Use::write) std::memset(holds, true, bytes);
    return use_cells<how, false>(cells_ + in_memory, bytes, from_base);
  }
  if (in_variables >= variables_bytes()) return;  // a thread's own
  const auto in_dynamic = static_cast<std::size_t>(at - reinterpret_cast<const char*>(dynamic_shared));
  if (in_dynamic < most_shared && in_dynamic + bytes > shared_bytes_)
    return say(Fault::outside, true, shared_cells_[in_variables], from_base);
  use_cells<how, true>(shared_cells_ + in_variables, bytes, from_base);
}

void Watch::say(Fault fault, bool shared, const Cell& cell, std::uint32_t site) {
  if (!found_.empty()) return;
  const std::string what = shared ? "shared memory" : "memory", me = "thread " + std::to_string(thread_);
  const std::string other = cell.writer == atomically ? "another" : "thread " + std::to_string(cell.writer);
  const std::string who = cell.written < block_ ? "another block" : other;
  found_ = lines_of(site) + ": " + me;
  switch (fault) {
    case Fault::outside: found_ += " is beyond the shared memory of its block"; break;
    case Fault::unwritten:
      found_ += " reads " + what + " that nobody" + (shared ? " in its block" : "") + " has written";
      break;
    case Fault::overtaken:
      found_ +=
          " reads " + what + " that " + who + " writes without a barrier between, " + lines_of(cell.site);
      break;
    case Fault::written_twice:
      found_ +=
          " writes " + what + " that " + who + " writes without a barrier between, " + lines_of(cell.site);
      break;
    case Fault::overwritten:
      found_ += " writes " + what + " that another thread reads without a barrier between";
      break;
    case Fault::none: break;
  }
}

template void Watch::use<Watch::Use::read>(const void*, std::size_t, const void*);
template void Watch::use<Watch::Use::write>(const void*, std::size_t, const void*);
template void Watch::use<Watch::Use::add>(const void*, std::size_t, const void*);

// ---------------------------------------------------------------- what the compiler calls
#define PRUN_WATCH(name, bytes, how) \
  void __tsan_##name(void* at) { the_watch.use<Watch::Use::how>(at, bytes, __builtin_return_address(0)); }
#define PRUN_WATCH_SIZE(bytes)                   \
  PRUN_WATCH(read##bytes, bytes, read)           \
  PRUN_WATCH(write##bytes, bytes, write)         \
  PRUN_WATCH(unaligned_read##bytes, bytes, read) \
  PRUN_WATCH(unaligned_write##bytes, bytes, write)

extern "C" {

PRUN_WATCH_SIZE(1)
PRUN_WATCH_SIZE(2)
PRUN_WATCH_SIZE(4)
PRUN_WATCH_SIZE(8)
PRUN_WATCH_SIZE(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  the_watch.use<Watch::Use::read>(at, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t bytes) {
  the_watch.use<Watch::Use::write>(at, bytes, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}

}  // namespace prun::simt
