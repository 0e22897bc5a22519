// Rates of flows over given routes, by ns-3's TCP and queues: what an independent packet simulator makes of a fabric.
//
// Reads from standard input, a word and numbers a line:
//   tcp PAYLOAD WINDOW           bytes of a segment, and of each socket's buffers
//   link A B BITS_PER_SECOND NS  nodes at both ends; links are numbered from 0
//   route NODE HOST LINK         by which link packets for a host leave a node
//   flow FROM TO BYTES
//   go                           runs what was read; prints a line: bytes per second of each flow
// and begins anew after it. Queues hold all, so nothing is lost: a flow has at most a window under way.

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{

struct Link
{
    uint32_t a, b;
    uint64_t rate, ns;
};

struct Route
{
    uint32_t node, host, link;
};

struct Flow
{
    uint32_t from, to;
    uint64_t bytes;
    uint64_t came = 0;
    double last = 0;
};

struct Fabric
{
    std::vector<Link> links;
    std::vector<Route> routes;
    std::vector<Flow> flows;
};

void
Came(Flow* flow, Ptr<const Packet> packet, const Address&)
{
    flow->came += packet->GetSize();
    flow->last = Simulator::Now().GetSeconds();
}

void
Run(Fabric& fabric)
{
    const double start = 1e-3;
    uint32_t count = 0;
    for (const auto& link : fabric.links)
    {
        count = std::max({count, link.a + 1, link.b + 1});
    }
    NodeContainer nodes;
    nodes.Create(count);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper tables;
    stack.SetRoutingHelper(tables);
    stack.SetIpv6StackInstall(false);
    stack.Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    TrafficControlHelper none;
    // By link: the interface of both ends. By host: its address.
    std::vector<std::pair<uint32_t, uint32_t>> interfaces;
    std::map<uint32_t, Ipv4Address> at;
    for (const auto& link : fabric.links)
    {
        PointToPointHelper cable;
        cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate(link.rate)));
        cable.SetDeviceAttribute("Mtu", UintegerValue(9000));
        cable.SetChannelAttribute("Delay", TimeValue(NanoSeconds(link.ns)));
        cable.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
        NetDeviceContainer ends = cable.Install(nodes.Get(link.a), nodes.Get(link.b));
        Ipv4InterfaceContainer named = addresses.Assign(ends);
        none.Uninstall(ends);
        addresses.NewNetwork();
        interfaces.emplace_back(named.Get(0).second, named.Get(1).second);
        at[link.a] = named.GetAddress(0);
        at[link.b] = named.GetAddress(1);
    }
    for (const auto& route : fabric.routes)
    {
        const auto& link = fabric.links[route.link];
        const auto& both = interfaces[route.link];
        Ptr<Ipv4> ip = nodes.Get(route.node)->GetObject<Ipv4>();
        uint32_t out = link.a == route.node ? both.first : both.second;
        tables.GetStaticRouting(ip)->AddHostRouteTo(at[route.host], out);
    }
    for (uint32_t n = 0; n < fabric.flows.size(); n++)
    {
        Flow& flow = fabric.flows[n];
        InetSocketAddress to(at[flow.to], 1000 + n);
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 1000 + n));
        ApplicationContainer takes = sink.Install(nodes.Get(flow.to));
        takes.Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&Came, &flow));
        BulkSendHelper source("ns3::TcpSocketFactory", to);
        source.SetAttribute("MaxBytes", UintegerValue(flow.bytes));
        source.SetAttribute("SendSize", UintegerValue(1 << 14));
        source.Install(nodes.Get(flow.from)).Start(Seconds(start));
    }
    Simulator::Stop(Seconds(10));
    Simulator::Run();
    for (const auto& flow : fabric.flows)
    {
        std::cout << (flow.came == flow.bytes ? flow.bytes / (flow.last - start) : 0.0) << ' ';
    }
    std::cout << std::endl;
    Simulator::Destroy();
}

} // namespace

int
main()
{
    std::cout.precision(9);
    Fabric fabric;
    std::string word;
    while (std::cin >> word)
    {
        uint64_t a = 0, b = 0, c = 0, d = 0;
        if (word == "tcp")
        {
            std::cin >> a >> b;
            Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
            Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(a));
            Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(b));
            Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(b));
            Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
            Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
        }
        else if (word == "link")
        {
            std::cin >> a >> b >> c >> d;
            fabric.links.push_back({uint32_t(a), uint32_t(b), c, d});
        }
        else if (word == "route")
        {
            std::cin >> a >> b >> c;
            fabric.routes.push_back({uint32_t(a), uint32_t(b), uint32_t(c)});
        }
        else if (word == "flow")
        {
            std::cin >> a >> b >> c;
            fabric.flows.push_back({uint32_t(a), uint32_t(b), c});
        }
        else if (word == "go")
        {
            Run(fabric);
            fabric = Fabric();
        }
        else
        {
            std::cerr << "unknown: " << word << std::endl;
            return 2;
        }
    }
    return 0;
}
