// Connects the members of a group by sockets, for what they tell each other once memory is there.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/check.hpp"

namespace prun::copies {

// ------------------------------------------------------------------- wires

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

// ------------------------------------------------------------------- driver
// Has streams write numbers to memory and wait for them, and shares memory that was backed by hand, by
// functions of the driver that are looked up when the first communicator is made: so the plugin loads where
// there is no driver.

class Driver {
 public:
  // Throws where there is no driver, or it is too old.
  Driver();

  void write(cudaStream_t stream, void* word, std::uint64_t value) const {
    check(write_(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
          "writing a number");
  }
  // Has the stream wait until the word is `value` or more.
  void wait(cudaStream_t stream, void* word, std::uint64_t value) const {
    check(wait_(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_GEQ),
          "waiting for a number");
  }
  void check(CUresult result, const char* what) const;

  decltype(&cuMemGetAddressRange) address_range = nullptr;
  decltype(&cuMemRetainAllocationHandle) retain = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;

 private:
  decltype(&cuGetErrorString) error_string_ = nullptr;
  decltype(&cuStreamWaitValue64) wait_ = nullptr;
  decltype(&cuStreamWriteValue64) write_ = nullptr;
};

// ------------------------------------------------------------------- shared range
// Opens a range of a GPU's memory, backed by hand, that another member has.

// Describes memory as it was allocated, with a file that stands for it.
struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  File file;
};
// Returns the allocation that an address is in. It must have been backed by hand, with handles that are
// files; throws otherwise.
Allocation allocation_of(const Driver& driver, void* address);

// Maps the memory that such a file stands for, for the current GPU.
class SharedRange {
 public:
  SharedRange(const Driver& driver, int file, std::size_t bytes);
  ~SharedRange();
  SharedRange(const SharedRange&) = delete;
  SharedRange& operator=(const SharedRange&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  void free();

  const Driver& driver_;
  const std::size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool imported_ = false, mapped_ = false;
};

}  // namespace prun::copies
