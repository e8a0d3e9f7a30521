// Makes the calls to UCP.
#include "wire.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>

#include "silence.hpp"

namespace prun::ucx {
namespace {

constexpr std::uint64_t whole_tag = ~std::uint64_t{0};
constexpr std::chrono::milliseconds closing_limit{500};

}  // namespace

Wire::Wire(std::shared_ptr<Context> context)
    : context_(std::move(context)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (bell_.number() < 0)
    throw_error(ErrorCode::unsupported,
                "comm ucx: cannot make a descriptor to wake by: ", std::strerror(errno),
                "; raise the limit on open files (ulimit -n)");
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  check_ucx("make a worker", ErrorCode::unsupported,
            [&] { return ucp_worker_create(context_->get(), &params, &worker); });
  worker_.reset(worker);
  check_ucx("give a descriptor to wait on", ErrorCode::unsupported,
            [&] { return ucp_worker_get_efd(worker, &events_); });
}

Wire::~Wire() {
  for (Peer& peer : peers_) close(peer);
}

std::vector<std::byte> Wire::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check_ucx("give its address", ErrorCode::unsupported,
            [&] { return ucp_worker_get_address(worker_.get(), &address, &size); });
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + size);
  ucp_worker_release_address(worker_.get(), address);
  return copy;
}

void Wire::connect(const std::vector<Remote>& remotes) {
  peers_.resize(remotes.size());
  for (std::size_t i = 0; i < remotes.size(); ++i) {
    if (remotes[i].address.empty()) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(remotes[i].address.data());
    params.err_mode = remotes[i].watched ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {&Wire::lost, &peers_[i]};
    const std::string action = "connect to member " + std::to_string(i);
    check_ucx(action.c_str(), ErrorCode::comm_failed,
              [&] { return ucp_ep_create(worker_.get(), &params, &peers_[i].endpoint); });
  }
}

// Reads lines such as "lane[0]:  3:sysv/memory.0 md[2]  -> md[2]/sysv/sysdev[255] am am_bw#0"; what looks
// after the connection alone carries no message.
std::set<std::string> Wire::lanes_to(std::int32_t member) const {
  std::set<std::string> found;
  std::istringstream lines(
      printed([&](FILE* out) { ucp_ep_print_info(peers_[static_cast<std::size_t>(member)].endpoint, out); }));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t lane = line.find("lane["), colon = line.find(':', line.find("]:", lane) + 2);
    const bool carries = line.find(" am") != std::string::npos || line.find(" rma") != std::string::npos;
    if (lane == std::string::npos || colon == std::string::npos || !carries) continue;
    const std::string name = line.substr(colon + 1, line.find(' ', colon) - colon - 1);
    found.insert(name.substr(0, name.rfind('.')));
  }
  return found;
}

void Wire::limit_silence(std::chrono::milliseconds limit) const { ucx::limit_silence(events_, limit); }

void Wire::post_send(std::int32_t member, std::uint64_t tag, const void* data, std::int64_t bytes,
                     Transfer& transfer) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = &Wire::done;
  param.user_data = &transfer;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  settle(transfer, ucp_tag_send_nbx(peers_[static_cast<std::size_t>(member)].endpoint, data,
                                    static_cast<std::size_t>(bytes), tag, &param));
}

void Wire::post_receive(std::uint64_t tag, void* data, std::int64_t bytes, Transfer& transfer) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv = &Wire::received;
  param.user_data = &transfer;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  settle(transfer,
         ucp_tag_recv_nbx(worker_.get(), data, static_cast<std::size_t>(bytes), tag, whole_tag, &param));
}

void Wire::settle(Transfer& transfer, ucs_status_ptr_t result) {
  if (UCS_PTR_IS_PTR(result))
    transfer.request = result;
  else
    transfer.listener->on_done(transfer, UCS_PTR_STATUS(result));
}

void Wire::done(void* request, ucs_status_t status, void* data) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(data);
  transfer.request = nullptr;
  ucp_request_free(request);
  transfer.listener->on_done(transfer, status);
}

void Wire::lost(void* data, ucp_ep_h, ucs_status_t status) noexcept {
  static_cast<Peer*>(data)->state = status;
}

void Wire::cancel(Transfer& transfer) {
  if (transfer.request) ucp_request_cancel(worker_.get(), transfer.request);
}

void Wire::sleep(std::chrono::milliseconds limit) {
  if (ucp_worker_arm(worker_.get()) != UCS_OK) return;  // a message came in between
  std::array<pollfd, 2> files{pollfd{events_, POLLIN, 0}, pollfd{bell_.number(), POLLIN, 0}};
  ::poll(files.data(), files.size(), static_cast<int>(limit.count()));
}

void Wire::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.number(), &one, sizeof one);
}

// Gives messages on their way a little time: with a peer that died, they would hold this for ever.
void Wire::close(Peer& peer) {
  if (!peer.endpoint) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  if (given_up_ || peer.state != UCS_OK) param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t closing = ucp_ep_close_nbx(peer.endpoint, &param);
  if (!UCS_PTR_IS_PTR(closing)) return;
  const auto end = std::chrono::steady_clock::now() + closing_limit;
  progress_while([&] { return ucp_request_check_status(closing) == UCS_INPROGRESS; }, end);
  ucp_request_free(closing);
}

}  // namespace prun::ucx
