#include "meeting.hpp"

#include <fstream>
#include <random>

#include "prun/error.hpp"

namespace prun::copies {
namespace {

using cuda::check;

// Tells hosts apart: it is another number each time one starts.
std::string host_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Tells processes apart, also those of several containers.
std::uint64_t process_id() {
  static const std::uint64_t id = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return id;
}

// Copies as much as there is room for into zeros.
template <std::size_t size>
void put(char (&to)[size], const std::string& text) {
  text.copy(to, size - 1);
}

// Runs `work` and returns what went wrong.
template <class Work>
std::string problem_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

int current_gpu() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "asking for the GPU");
  return gpu;
}

void refuse_peer(const char* mine, const char* other) {
  throw_error(ErrorCode::unsupported, "comm copies: GPU ", mine, " cannot access the memory of GPU ", other,
              "; use comm nccl");
}

}  // namespace

Buffer::Buffer(std::int64_t bytes) {
  check(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)), "memory for messages");
}
Buffer::~Buffer() { cudaFree(memory_); }

// Holds what a member tells the others.
struct Meeting::Card {
  char problem[256] = {}, host[64] = {}, bus[32] = {}, page[512] = {}, wires[96] = {};
  std::uint64_t process = 0;
  std::int64_t buffer_bytes = 0;
  std::byte* buffer = nullptr;
  cudaIpcMemHandle_t handle{};
};

Meeting::Meeting(const CommGroup& group, std::int64_t buffer_bytes, bool wires,
                 const std::atomic<bool>& aborted)
    : Meeting() {
  const Card mine = make_card(group, buffer_bytes, [&] {
    if (wires) wires_ = std::make_unique<Wires>(group.rank, group.size, aborted);
  });
  std::vector<Card> all(static_cast<std::size_t>(group.size));
  raise(group.exchange->all_gather(group.exchange->context, &mine, sizeof mine, all.data()));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].problem[0])
      throw_error(ErrorCode::unsupported, "group '", group.name.view(), "', member ", i, ": ",
                  all[i].problem);
  agree(group, problem_of([&] {
          open_page(group, all.front());
          for (std::int32_t i = 0; i < group.size; ++i)
            open(all[static_cast<std::size_t>(i)], i, buffer_bytes);
        }));
  page_->forget_name();
  std::vector<std::string> names;
  for (const Card& card : all) names.emplace_back(card.wires);
  if (wires_) agree(group, problem_of([&] { wires_->connect(names); }));
}

template <class Listen>
Meeting::Card Meeting::make_card(const CommGroup& group, std::int64_t buffer_bytes, Listen listen) {
  Card card;
  put(card.problem, problem_of([&] {
        if (group.size > most_members)
          throw_error(ErrorCode::unsupported, "comm copies: ", group.size, " ranks; it takes ", most_members,
                      " at most");
        put(card.host, host_id());
        card.process = process_id();
        check(cudaDeviceGetPCIBusId(card.bus, sizeof card.bus, current_gpu()), "asking for the GPU");
        own_ = std::make_unique<Buffer>(buffer_bytes);
        card.buffer_bytes = buffer_bytes;
        card.buffer = own_->data();
        check(cudaIpcGetMemHandle(&card.handle, own_->data()), "sharing memory with other processes");
        listen();
        if (wires_) put(card.wires, wires_->name());
        if (group.rank != 0) return;
        page_ = std::make_unique<SharedPage>();
        put(card.page, page_->name());
      }));
  return card;
}

void Meeting::open_page(const CommGroup& group, const Card& first) {
  if (first.host != host_id())
    throw_error(ErrorCode::unsupported, "comm copies: group '", group.name.view(),
                "' is on several hosts; use comm nccl");
  if (group.rank != 0) page_ = std::make_unique<SharedPage>(first.page);
  void* const memory = &page_->words();
  check(cudaHostRegister(memory, SharedPage::bytes(), cudaHostRegisterPortable | cudaHostRegisterMapped),
        "sharing a page with the host");
  registered_ = true;
  void* seen = nullptr;
  check(cudaHostGetDevicePointer(&seen, memory, 0), "sharing a page with the host");
  reach_.words = &page_->words();
  reach_.seen_words = static_cast<Words*>(seen);
}

void Meeting::open(const Card& of, std::int32_t member, std::int64_t buffer_bytes) {
  if (of.buffer_bytes != buffer_bytes)
    throw_error(ErrorCode::bad_input, "comm copies: member ", member, " has a buffer of ", of.buffer_bytes,
                " bytes, and this one of ", buffer_bytes, "; give all ranks one recipe");
  std::byte*& buffer = reach_.buffer[static_cast<std::size_t>(member)];
  if (of.buffer == own_->data() && of.process == process_id()) {
    buffer = own_->data();
    return;
  }
  char bus[32] = {};
  const int mine = current_gpu();
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, mine), "asking for the GPU");
  int other = 0, can = 1;
  const bool visible = cudaDeviceGetByPCIBusId(&other, of.bus) == cudaSuccess;
  if (!visible) cudaGetLastError();  // would be the next launch's otherwise
  if (visible && other != mine) check(cudaDeviceCanAccessPeer(&can, mine, other), "asking for GPUs' links");
  if (!can) refuse_peer(bus, of.bus);
  if (of.process == process_id()) {
    const cudaError_t status = other == mine ? cudaSuccess : cudaDeviceEnablePeerAccess(other, 0);
    if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "opening another GPU's memory");
    cudaGetLastError();
    buffer = of.buffer;
    return;
  }
  void* opened = nullptr;
  check(cudaIpcOpenMemHandle(&opened, of.handle, cudaIpcMemLazyEnablePeerAccess),
        "opening another process' memory on a GPU (comm nccl needs none)");
  opened_.push_back(opened);
  buffer = static_cast<std::byte*>(opened);
}

void Meeting::agree(const CommGroup& group, const std::string& problem) const {
  using Answer = std::array<char, 256>;
  Answer mine{};
  problem.copy(mine.data(), mine.size() - 1);
  std::vector<Answer> all(static_cast<std::size_t>(group.size));
  raise(group.exchange->all_gather(group.exchange->context, &mine, sizeof mine, all.data()));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i][0])
      throw_error(ErrorCode::unsupported, "group '", group.name.view(), "', member ", i, ": ", all[i].data());
}

void Meeting::leave() {
  for (void* const opened : opened_) cudaIpcCloseMemHandle(opened);
  opened_.clear();
}

void Meeting::abandon() {
  opened_.clear();
  static_cast<void>(own_.release());
  static_cast<void>(page_.release());
  registered_ = false;
}

Meeting::~Meeting() {
  leave();
  if (registered_) cudaHostUnregister(&page_->words());
}

}  // namespace prun::copies
