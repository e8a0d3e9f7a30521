#include "wires.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

#include "prun/error.hpp"

namespace prun::copies {
namespace {

// ------------------------------------------------------------------- wires

[[noreturn]] void fail(const char* what) {
  throw_error(ErrorCode::comm_failed, "comm copies: ", what, " another rank: ", std::strerror(errno));
}

// Returns the address of a name in the kernel's own space of names, which needs no file.
sockaddr_un address_of(const std::string& name, socklen_t& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

File new_socket() {
  File file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (file.number() < 0) fail("meeting");
  return file;
}

// Says whether it is this user's process that is at the other end.
bool is_own(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == ::geteuid();
}

}  // namespace

File::~File() {
  if (number_ >= 0) ::close(number_);
}

Wires::Wires(std::int32_t rank, std::int32_t size, const std::atomic<bool>& aborted)
    : rank_(rank), size_(size), aborted_(aborted), listener_(new_socket()) {
  std::random_device random;
  name_ =
      "prun-copies-" + std::to_string(::getpid()) + "-" + std::to_string(random()) + std::to_string(random());
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(name_, bytes);
  if (::bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener_.number(), size) != 0)
    fail("listening for");
  for (std::int32_t i = 0; i < size; ++i) sockets_.emplace_back();
}

// Each calls those before it, and is called by those behind it.
void Wires::connect(const std::vector<std::string>& names) {
  for (std::int32_t i = 0; i < rank_; ++i) {
    File& socket = sockets_[static_cast<std::size_t>(i)] = new_socket();
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(names[static_cast<std::size_t>(i)], bytes);
    if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) fail("calling");
    send(i, &rank_, sizeof rank_);
  }
  for (std::int32_t left = size_ - 1 - rank_; left > 0;) {
    await(listener_.number());
    File caller(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (caller.number() < 0) fail("hearing");
    if (!is_own(caller.number())) continue;
    std::int32_t who = -1;
    await(caller.number());
    if (::recv(caller.number(), &who, sizeof who, MSG_WAITALL) != sizeof who || who <= rank_ || who >= size_)
      fail("hearing");
    sockets_[static_cast<std::size_t>(who)] = std::move(caller);
    --left;
  }
}

void Wires::await(int file) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  pollfd asked{file, POLLIN, 0};
  while (::poll(&asked, 1, 20) <= 0)
    if (aborted_.load() || std::chrono::steady_clock::now() > end)
      throw_error(ErrorCode::comm_failed, "comm copies: ",
                  aborted_.load() ? "the group was aborted while" : "another rank is silent while",
                  " connecting");
}

void Wires::send(std::int32_t to, const void* data, std::size_t bytes) const {
  const int socket = sockets_[static_cast<std::size_t>(to)].number();
  if (::send(socket, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) fail("telling");
}

void Wires::receive(std::int32_t from, void* data, std::size_t bytes) const {
  const int socket = sockets_[static_cast<std::size_t>(from)].number();
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    await(socket);
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got <= 0) throw_error(ErrorCode::comm_failed, "comm copies: member ", from, " is gone");
    at += got, bytes -= static_cast<std::size_t>(got);
  }
}

void Wires::all_gather(const void* mine, std::size_t bytes, void* all) {
  for (std::int32_t i = 0; i < size_; ++i)
    if (i != rank_) send(i, mine, bytes);
  for (std::int32_t i = 0; i < size_; ++i) {
    char* const to = static_cast<char*>(all) + static_cast<std::size_t>(i) * bytes;
    if (i == rank_)
      std::memcpy(to, mine, bytes);
    else
      receive(i, to, bytes);
  }
}

// A file travels beside a byte.
void Wires::send_file(std::int32_t to, int file) const {
  char word = 0;
  iovec text{&word, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof file)] = {};
  msghdr message{};
  message.msg_iov = &text, message.msg_iovlen = 1;
  message.msg_control = room, message.msg_controllen = sizeof room;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(head), &file, sizeof file);
  if (::sendmsg(sockets_[static_cast<std::size_t>(to)].number(), &message, MSG_NOSIGNAL) != 1)
    fail("telling");
}

File Wires::receive_file(std::int32_t from) const {
  char word = 0;
  iovec text{&word, 1};
  int file = -1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof file)] = {};
  msghdr message{};
  message.msg_iov = &text, message.msg_iovlen = 1;
  message.msg_control = room, message.msg_controllen = sizeof room;
  const int socket = sockets_[static_cast<std::size_t>(from)].number();
  await(socket);
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const head = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (!head || head->cmsg_type != SCM_RIGHTS)
    throw_error(ErrorCode::comm_failed, "comm copies: member ", from, " gave no memory");
  std::memcpy(&file, CMSG_DATA(head), sizeof file);
  return File(file);
}

std::vector<File> Wires::all_gather_files(int mine) {
  std::vector<File> all(static_cast<std::size_t>(size_));
  for (std::int32_t i = 0; i < size_; ++i)
    if (i != rank_) send_file(i, mine);
  for (std::int32_t i = 0; i < size_; ++i)
    if (i != rank_) all[static_cast<std::size_t>(i)] = receive_file(i);
  return all;
}

namespace {

// ------------------------------------------------------------------- driver

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cuda::check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess || !found)
    throw_error(ErrorCode::unsupported, "comm copies: the driver has no ", name,
                "; install a driver for CUDA 12 or newer");
  function = reinterpret_cast<Function>(found);
}

}  // namespace

Driver::Driver() {
  look_up("cuGetErrorString", error_string_);
  look_up("cuStreamWaitValue64", wait_);
  look_up("cuStreamWriteValue64", write_);
  look_up("cuMemGetAddressRange", address_range);
  look_up("cuMemRetainAllocationHandle", retain);
  look_up("cuMemExportToShareableHandle", export_handle);
  look_up("cuMemImportFromShareableHandle", import_handle);
  look_up("cuMemAddressReserve", reserve);
  look_up("cuMemAddressFree", free_address);
  look_up("cuMemRelease", release);
  look_up("cuMemMap", map);
  look_up("cuMemUnmap", unmap);
  look_up("cuMemSetAccess", set_access);
}

void Driver::check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  const char* text = "unknown error";
  error_string_(result, &text);
  throw_error(ErrorCode::internal, "comm copies: ", what, ": ", text);
}

// ------------------------------------------------------------------- shared range

Allocation allocation_of(const Driver& driver, void* address) {
  Allocation found;
  CUdeviceptr begin = 0;
  driver.check(driver.address_range(&begin, &found.bytes, reinterpret_cast<CUdeviceptr>(address)),
               "asking for a range of memory");
  found.begin = reinterpret_cast<std::byte*>(begin);
  CUmemGenericAllocationHandle handle = 0;
  driver.check(driver.retain(&handle, address), "memory that was not backed by hand");
  int file = -1;
  const CUresult result = driver.export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  driver.release(handle);
  driver.check(result, "sharing memory");
  found.file = File(file);
  return found;
}

SharedRange::SharedRange(const Driver& driver, int file, std::size_t bytes) : driver_(driver), bytes_(bytes) {
  int gpu = 0;
  cuda::check(cudaGetDevice(&gpu), "asking for the GPU");
  try {
    driver.check(driver.import_handle(&handle_, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                 "opening another GPU's memory");
    imported_ = true;
    driver.check(driver.reserve(&address_, bytes, 0, 0, 0), "reserving addresses");
    driver.check(driver.map(address_, bytes, 0, handle_, 0), "mapping another GPU's memory");
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = gpu;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver.check(driver.set_access(address_, bytes, &access, 1), "opening another GPU's memory");
  } catch (const Error&) {
    free();
    throw;
  }
}

SharedRange::~SharedRange() { free(); }

void SharedRange::free() {
  if (mapped_) driver_.unmap(address_, bytes_);
  if (imported_) driver_.release(handle_);
  if (address_) driver_.free_address(address_, bytes_);
}

}  // namespace prun::copies
