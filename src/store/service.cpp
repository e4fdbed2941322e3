// The server's side of each query.
#include "store/service.hpp"

#include <optional>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::store {

bool Service::serve(ClientId client, const Request& request, std::string& reply) {
  const std::string_view key = request.keys.empty() ? std::string_view() : request.keys.front();
  switch (request.query) {
    case Query::validate: return false;  // only at the opening
    case Query::set:
      table_.set(key, std::string(request.values[0]));
      waiters_.key_came(key);
      return true;
    case Query::compare_set:
      append_text(reply, table_.compare_set(key, std::string(request.values[0]), std::string(request.values[1])));
      if (table_.find(key)) waiters_.key_came(key);
      return true;
    case Query::get:
    case Query::multi_get: return serve_values(request, reply);
    case Query::add: return serve_add(request, reply);
    case Query::check:
      append_number(reply, table_.check(request.keys) ? CheckReply::ready : CheckReply::not_ready);
      return true;
    case Query::wait:
    case Query::barrier: return serve_wait(client, request, reply);
    case Query::num_keys: append_number(reply, table_.num_keys()); return true;
    case Query::delete_key: append_number<std::int64_t>(reply, table_.delete_key(key) ? 1 : 0); return true;
    case Query::append: {
      const std::string* value = table_.find(key);
      if (value && value->size() + request.values[0].size() > kMaxReplyBytes - 8)
        return false;  // get could not reply it
      table_.append(key, request.values[0]);
      waiters_.key_came(key);
      return true;
    }
    case Query::multi_set:
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        table_.set(request.keys[i], std::string(request.values[i]));
        waiters_.key_came(request.keys[i]);
      }
      return true;
    case Query::cancel_wait:
      waiters_.cancel(client);
      append_number(reply, WaitReply::wait_canceled);
      return true;
    case Query::ping: append_number(reply, static_cast<std::uint32_t>(request.number)); return true;
    case Query::queue_push:
      table_.queue_push(key, std::string(request.values[0]));
      waiters_.element_came(key);
      return true;
    case Query::queue_pop: {
      append_number(reply, table_.queue_len(key));
      if (const std::optional<std::string> value = table_.queue_pop(key)) append_text(reply, *value);
      return true;
    }
    case Query::queue_len: append_number(reply, table_.queue_len(key)); return true;
    case Query::list_keys: return serve_keys(reply);
  }
  return false;
}

bool Service::serve_add(const Request& request, std::string& reply) {
  const std::string_view key = request.keys[0];
  std::int64_t sum = 0;
  try {
    sum = table_.add(key, request.number);
  } catch (const InvalidArgument&) {
    return false;  // as PyTorch's server: the reply has no room for an error
  }
  append_number(reply, sum);
  if (key == kWorkersKey) workers_ = sum;
  waiters_.key_came(key);
  return true;
}

bool Service::serve_wait(ClientId client, const Request& request, std::string& reply) {
  if (waiters_.waits(client)) return false;
  if (request.query == Query::barrier) {
    if (waiters_.arrive(client, request.keys[0], request.number)) append_number(reply, WaitReply::stop_waiting);
    return true;
  }
  std::vector<std::string> missing;
  for (const std::string_view key : request.keys) {
    if (!table_.has(key)) missing.emplace_back(key);
  }
  if (missing.empty()) {
    append_number(reply, WaitReply::stop_waiting);
  } else {
    waiters_.wait(client, std::move(missing));
  }
  return true;
}

// A missing key has an empty value: the protocol knows no other answer, and clients wait before they ask or ask again.
bool Service::serve_values(const Request& request, std::string& reply) {
  const std::size_t before = reply.size();
  for (const std::string_view key : request.keys) {
    const std::string* value = table_.find(key);
    append_text(reply, value ? std::string_view(*value) : std::string_view());
    if (reply.size() - before > kMaxReplyBytes) return false;
  }
  return true;
}

bool Service::serve_keys(std::string& reply) {
  const std::size_t before = reply.size();
  append_number(reply, table_.num_keys());
  for (const auto& [key, value] : table_.values()) {
    append_text(reply, key);
    if (reply.size() - before > kMaxReplyBytes) return false;
  }
  return true;
}

}  // namespace hookline::store
