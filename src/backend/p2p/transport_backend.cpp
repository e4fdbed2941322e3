// The Backend over any transport.
#include <fmt/format.h>

#include <hookline/backend/transport.hpp>
#include <hookline/core/error.hpp>

#include "backend/p2p/p2p_context.hpp"

namespace hookline {
namespace p2p {
namespace {

class TransportBackend final : public Backend {
 public:
  explicit TransportBackend(std::shared_ptr<P2PContext> context) : context_(std::move(context)) {}
  TransportBackend(const TransportBackend&) = delete;
  TransportBackend& operator=(const TransportBackend&) = delete;
  ~TransportBackend() override { context_->close(); }

  std::string name() const override { return context_->name(); }
  int rank() const override { return context_->rank(); }
  int size() const override { return context_->size(); }
  Capabilities capabilities() const override { return {.lanes = kNumLanes}; }

  WorkPtr start(Operation&& operation, int lane, Milliseconds timeout) override {
    return context_->start(std::move(operation), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    const Tensor memory = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8);
    return {memory.owner(), memory.mutable_bytes()};
  }
  std::shared_ptr<Backend> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                        Milliseconds timeout) override {
    context_->refuse_in_forked_child("new_group");
    return make_transport_backend(context_->transport().new_subgroup(ranks, name, timeout));
  }
  void abort(const std::string& cause) override {
    context_->refuse_in_forked_child("abort");
    context_->fail(std::make_exception_ptr(
        Aborted(fmt::format("rank {} aborted the {} group: {}", rank(), name(), cause), {rank()})));
  }
  void shutdown() override { context_->close(); }
  std::exception_ptr error() const override { return context_->error(); }
  std::vector<int> dead_ranks() override { return context_->dead_ranks(); }

 private:
  const std::shared_ptr<P2PContext> context_;
};

}  // namespace
}  // namespace p2p

std::shared_ptr<Backend> make_transport_backend(std::shared_ptr<Transport> transport) {
  const auto context = std::make_shared<p2p::P2PContext>(std::move(transport));
  context->open();
  return std::make_shared<p2p::TransportBackend>(context);
}

}  // namespace hookline
