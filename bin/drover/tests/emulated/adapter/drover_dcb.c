// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two interfaces at the ends of one wire, dcb0 and dcb1, that have data centre bridging as an adapter of 25 Gbit/s would: the kernel's
 * own dcbnl is asked and told, and each end says of its peer what the other end has set. A driver for tests, not hardware: nothing is
 * held back, shared or bounded by what is set, and nobody speaks LLDP.
 *
 * Settings are all of ours, and calls of dcbnl and of ethtool hold the RTNL, which keeps both ends together.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <net/dcbnl.h>

#define APPS 16

struct end {
	struct net_device *peer;
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	struct ieee_maxrate maxrate;
	struct dcb_app apps[APPS];
	u16 app_count;
	u8 dcbx;
	struct dcbnl_buffer buffers;
	struct ethtool_pauseparam pause;
};

static unsigned long held_back;
module_param(held_back, ulong, 0644);
MODULE_PARM_DESC(held_back, "frames of PFC that each end says it got");

static struct device *parent;
static struct net_device *ends[2];

static struct end *peer_of(struct net_device *dev)
{
	struct end *own = netdev_priv(dev);

	return netdev_priv(own->peer);
}

static int get_ets(struct net_device *dev, struct ieee_ets *ets)
{
	struct end *own = netdev_priv(dev);

	*ets = own->ets;
	return 0;
}

static int set_ets(struct net_device *dev, struct ieee_ets *ets)
{
	struct end *own = netdev_priv(dev);

	own->ets = *ets;
	own->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	return 0;
}

static int get_peer_ets(struct net_device *dev, struct ieee_ets *ets)
{
	*ets = peer_of(dev)->ets;
	return 0;
}

static int get_pfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	struct end *own = netdev_priv(dev);

	*pfc = own->pfc;
	pfc->indications[0] = held_back;
	return 0;
}

static int set_pfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	struct end *own = netdev_priv(dev);

	own->pfc.pfc_en = pfc->pfc_en;
	return 0;
}

static int get_peer_pfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	*pfc = peer_of(dev)->pfc;
	return 0;
}

static int get_maxrate(struct net_device *dev, struct ieee_maxrate *maxrate)
{
	struct end *own = netdev_priv(dev);

	*maxrate = own->maxrate;
	return 0;
}

static int set_maxrate(struct net_device *dev, struct ieee_maxrate *maxrate)
{
	struct end *own = netdev_priv(dev);

	own->maxrate = *maxrate;
	return 0;
}

/* The kernel keeps the table of each end to itself: a second one is for the peer. */
static int set_app(struct net_device *dev, struct dcb_app *app)
{
	struct end *own = netdev_priv(dev);
	int err;

	if (own->app_count == APPS)
		return -ENOSPC;
	err = dcb_ieee_setapp(dev, app);
	if (!err)
		own->apps[own->app_count++] = *app;
	return err;
}

static int del_app(struct net_device *dev, struct dcb_app *app)
{
	struct end *own = netdev_priv(dev);
	int err = dcb_ieee_delapp(dev, app);
	u16 at;

	for (at = 0; !err && at < own->app_count; at++) {
		if (!memcmp(&own->apps[at], app, sizeof(*app))) {
			own->apps[at] = own->apps[--own->app_count];
			break;
		}
	}
	return err;
}

static int get_peer_app_count(struct net_device *dev,
			      struct dcb_peer_app_info *info, u16 *count)
{
	memset(info, 0, sizeof(*info));
	*count = peer_of(dev)->app_count;
	return 0;
}

static int get_peer_apps(struct net_device *dev, struct dcb_app *table)
{
	struct end *peer = peer_of(dev);

	memcpy(table, peer->apps, peer->app_count * sizeof(*table));
	return 0;
}

static u8 get_dcbx(struct net_device *dev)
{
	struct end *own = netdev_priv(dev);

	return own->dcbx;
}

/* As drivers whose firmware does not negotiate: it is left to the host, in whichever language. */
static u8 set_dcbx(struct net_device *dev, u8 mode)
{
	struct end *own = netdev_priv(dev);

	if (!(mode & DCB_CAP_DCBX_HOST) || mode & DCB_CAP_DCBX_LLD_MANAGED)
		return 1;
	own->dcbx = mode;
	return 0;
}

static int get_buffers(struct net_device *dev, struct dcbnl_buffer *buffers)
{
	struct end *own = netdev_priv(dev);

	*buffers = own->buffers;
	return 0;
}

static int set_buffers(struct net_device *dev, struct dcbnl_buffer *buffers)
{
	struct end *own = netdev_priv(dev);

	own->buffers = *buffers;
	return 0;
}

static const struct dcbnl_rtnl_ops dcb_ops = {
	.ieee_getets = get_ets,
	.ieee_setets = set_ets,
	.ieee_getpfc = get_pfc,
	.ieee_setpfc = set_pfc,
	.ieee_getmaxrate = get_maxrate,
	.ieee_setmaxrate = set_maxrate,
	.ieee_setapp = set_app,
	.ieee_delapp = del_app,
	.ieee_peer_getets = get_peer_ets,
	.ieee_peer_getpfc = get_peer_pfc,
	.peer_getappinfo = get_peer_app_count,
	.peer_getapptable = get_peer_apps,
	.getdcbx = get_dcbx,
	.setdcbx = set_dcbx,
	.dcbnl_getbuffer = get_buffers,
	.dcbnl_setbuffer = set_buffers,
};

static int get_link(struct net_device *dev, struct ethtool_link_ksettings *link)
{
	link->base.speed = SPEED_25000;
	link->base.duplex = DUPLEX_FULL;
	link->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static void get_pause(struct net_device *dev, struct ethtool_pauseparam *pause)
{
	struct end *own = netdev_priv(dev);

	*pause = own->pause;
}

static int set_pause(struct net_device *dev, struct ethtool_pauseparam *pause)
{
	struct end *own = netdev_priv(dev);

	if (pause->autoneg)
		return -EOPNOTSUPP;
	own->pause = *pause;
	return 0;
}

static const struct ethtool_ops link_ops = {
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link,
	.get_pauseparam = get_pause,
	.set_pauseparam = set_pause,
};

static netdev_tx_t carry(struct sk_buff *skb, struct net_device *dev)
{
	struct end *own = netdev_priv(dev);

	/* What the other end does not take is freed there. */
	dev_forward_skb(own->peer, skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops ops = {
	.ndo_start_xmit = carry,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static int make(int number)
{
	const u8 address[ETH_ALEN] = { 0x02, 0x64, 0x63, 0x62, 0x00, number };
	struct net_device *dev = alloc_etherdev(sizeof(struct end));
	struct end *own;

	if (!dev)
		return -ENOMEM;
	ends[number] = dev;
	own = netdev_priv(dev);
	own->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	own->pfc.pfc_cap = IEEE_8021QAZ_MAX_TCS;
	own->dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
	eth_hw_addr_set(dev, address);
	strscpy(dev->name, number ? "dcb1" : "dcb0", sizeof(dev->name));
	dev->max_mtu = 9000;
	dev->netdev_ops = &ops;
	dev->ethtool_ops = &link_ops;
	dev->dcbnl_ops = &dcb_ops;
	SET_NETDEV_DEV(dev, parent);
	return 0;
}

static void join(struct net_device *dev, struct net_device *peer)
{
	struct end *own = netdev_priv(dev);

	own->peer = peer;
}

static void forget(void)
{
	int number;

	/* Both are gone for everybody before one of them is freed. */
	for (number = 0; number < 2; number++) {
		if (ends[number] && ends[number]->reg_state == NETREG_REGISTERED)
			unregister_netdev(ends[number]);
	}
	for (number = 0; number < 2; number++) {
		if (ends[number])
			free_netdev(ends[number]);
	}
	root_device_unregister(parent);
}

static int __init begin(void)
{
	int number, err = 0;

	parent = root_device_register("drover_dcb");
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	for (number = 0; number < 2 && !err; number++)
		err = make(number);
	if (!err) {
		join(ends[0], ends[1]);
		join(ends[1], ends[0]);
	}
	for (number = 0; number < 2 && !err; number++)
		err = register_netdev(ends[number]);
	if (err)
		forget();
	return err;
}

module_init(begin);
module_exit(forget);

MODULE_DESCRIPTION("Two interfaces with data centre bridging, for tests of Drover");
MODULE_LICENSE("GPL");
