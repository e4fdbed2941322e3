// Everything that Hookline offers to C++ programs.
#pragma once

#include <hookline/backend/backend.hpp>
#include <hookline/backend/collective.hpp>
#include <hookline/backend/shm.hpp>
#include <hookline/backend/threads.hpp>
#include <hookline/core/deadline.hpp>
#include <hookline/core/dims.hpp>
#include <hookline/core/dtype.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/core/reduce_op.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/init.hpp>
#include <hookline/group/options.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/group/work.hpp>
#include <hookline/store/file_store.hpp>
#include <hookline/store/memory_store.hpp>
#include <hookline/store/prefix_store.hpp>
#include <hookline/store/rendezvous.hpp>
#include <hookline/store/store.hpp>
#include <hookline/store/tcp_store.hpp>
#include <hookline/version.hpp>
